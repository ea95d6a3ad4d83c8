"""The program of confluent-kafka (librdkafka, as its wheel brings it)."""

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import program


class Client:
    def __init__(self, seeds):
        self.seeds = seeds

    def create_topic(self, command, stop, out):
        admin = AdminClient({"bootstrap.servers": self.seeds})
        topic = NewTopic(command["topic"], num_partitions=command["ranges"], replication_factor=command["replicas"])
        for future in admin.create_topics([topic]).values():
            future.result()

    def produce(self, command, stop, out):
        # error_cb tells of broken connections for information; what fails reaches delivered or raises.
        producer = Producer({
            "bootstrap.servers": self.seeds, "acks": "all", "compression.type": command.get("codec") or "none",
            "enable.idempotence": command.get("idempotent", False), "linger.ms": 5, "error_cb": out.warn,
        })
        acked, failed = 0, []

        def delivered(err, _):
            nonlocal acked
            if err is None:
                acked += 1
            else:
                failed.append(err)

        for value in program.values(command, stop):
            producer.produce(command["topic"], value=value, on_delivery=delivered)
            producer.poll(0)
        left = producer.flush(180)
        if failed or left:
            raise RuntimeError("%d records failed, %d unanswered: %s" % (len(failed), left, failed[:1]))
        return acked

    def consume(self, command, stop, out):
        consumer = Consumer({
            "bootstrap.servers": self.seeds, "group.id": "none", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "error_cb": out.warn,
        })
        topic = consumer.list_topics(command["topic"], timeout=60).topics[command["topic"]]
        consumer.assign([TopicPartition(command["topic"], r, confluent_kafka.OFFSET_BEGINNING) for r in topic.partitions])
        n, count = 0, command.get("count", 0)
        while not stop.asked() and not (count and n >= count):
            n += len(self._poll(consumer, out))
        consumer.close()

    def group(self, command, stop, out):
        config = {
            "bootstrap.servers": self.seeds, "group.id": command["group"], "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "error_cb": out.warn,
        }
        if command.get("protocol") == "consumer":
            config["group.protocol"] = "consumer"
        else:
            config.update({"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000})
        if command.get("instance"):
            config["group.instance.id"] = command["instance"]
        consumer = Consumer(config)
        consumer.subscribe([command["topic"]])
        while not stop.asked():
            if self._poll(consumer, out):
                self._commit(consumer, out)
        consumer.close()

    @staticmethod
    def _commit(consumer, out):
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as e:
            # The rebalance under way gave the ranges to another member, which reads them again: nothing to mend.
            if e.args[0].code() not in (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError._NO_OFFSET,
                                        KafkaError.STALE_MEMBER_EPOCH):
                raise
            out.warn("commit: %s" % e)

    @staticmethod
    def _poll(consumer, out):
        records = []
        for message in consumer.consume(500, timeout=0.1):
            if message.error():
                raise KafkaException(message.error())
            records.append((message.partition(), message.offset(), message.value()))
        out.records(records)
        return records


if __name__ == "__main__":
    version = "%s on librdkafka %s" % (confluent_kafka.__version__, confluent_kafka.libversion()[0])
    program.main("confluent-kafka", version, Client)
