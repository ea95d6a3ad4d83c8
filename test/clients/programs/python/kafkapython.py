"""The program of kafka-python."""

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import CommitFailedError, RebalanceInProgressError

import program


class Client:
    def __init__(self, seeds):
        self.seeds = seeds.split(",")

    def create_topic(self, command, stop, out):
        admin = KafkaAdminClient(bootstrap_servers=self.seeds)
        admin.create_topics([NewTopic(command["topic"], command["ranges"], command["replicas"])])
        admin.close()

    def produce(self, command, stop, out):
        producer = KafkaProducer(
            bootstrap_servers=self.seeds, acks="all", compression_type=command.get("codec") or None,
            enable_idempotence=command.get("idempotent", False), linger_ms=5)
        futures = [producer.send(command["topic"], value=value) for value in program.values(command, stop)]
        producer.flush()
        for future in futures:
            future.get(timeout=180)
        producer.close()
        return len(futures)

    def consume(self, command, stop, out):
        consumer = KafkaConsumer(bootstrap_servers=self.seeds, group_id=None, auto_offset_reset="earliest")
        ranges = consumer.partitions_for_topic(command["topic"])
        consumer.assign([TopicPartition(command["topic"], r) for r in ranges])
        n, count = 0, command.get("count", 0)
        while not stop.asked() and not (count and n >= count):
            n += self._poll(consumer, out)
        consumer.close()

    def group(self, command, stop, out):
        if command.get("protocol") == "consumer":
            raise program.Unsupported("it speaks the classic protocol only")
        consumer = KafkaConsumer(
            command["topic"], bootstrap_servers=self.seeds, group_id=command["group"], auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=1000,
            group_instance_id=command.get("instance") or None)
        while not stop.asked():
            if not self._poll(consumer, out):
                continue
            try:
                consumer.commit()
            except (CommitFailedError, RebalanceInProgressError) as e:
                # The rebalance under way gave the ranges to another member, which reads them again: nothing to mend.
                out.warn("commit: %r" % e)
        consumer.close(autocommit=False)

    @staticmethod
    def _poll(consumer, out):
        # kafka-python 3.0 loses an assignment that comes at the very moment at which a poll's time is over: let that be seldom.
        records = [(m.partition, m.offset, m.value) for batch in consumer.poll(timeout_ms=2000).values() for m in batch]
        out.records(records)
        return len(records)


if __name__ == "__main__":
    program.main("kafka-python", kafka.__version__, Client)
