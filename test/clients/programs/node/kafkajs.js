// The program of kafkajs, with its usual codec packages. The line protocol is in test/clients/doc.go.
'use strict'

const readline = require('readline')
const { createRequire } = require('module')

// The packages are installed outside the tree; the driver names where.
const need = createRequire(process.env.VTOP_NODE_MODULES + '/')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = need('kafkajs')
const lz4 = need('lz4js')
const { ZstdCodec } = need('zstd-codec')

CompressionCodecs[CompressionTypes.Snappy] = need('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
const zstd = new Promise(resolve => ZstdCodec.run(resolve))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(new (await zstd).Streaming().compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(new (await zstd).Streaming().decompress(buffer)),
})
const codecs = { '': 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }

class Unsupported extends Error {}

const write = event => process.stdout.write(JSON.stringify(event) + '\n')
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const brokers = process.argv[2].split(',')

function open(id) {
  // The default is five tries, the last of them ten seconds after the first: what a node takes to come back on a busy machine.
  return new Kafka({
    brokers, clientId: 'kafkajs-program', logLevel: logLevel.WARN, retry: { retries: 30, maxRetryTime: 2000 },
    logCreator: () => ({ log }) => write({ id, warn: `${log.message} ${log.error || ''}` }),
  })
}

async function create_topic(command) {
  const admin = open(command.id).admin()
  await admin.connect()
  await admin.createTopics({
    topics: [{ topic: command.topic, numPartitions: command.ranges, replicationFactor: command.replicas }],
  })
  await admin.disconnect()
}

// produce sends in small batches: kafkajs has no linger of its own, each send is one request.
async function produce(command, stop) {
  const producer = open(command.id).producer({ idempotent: !!command.idempotent, maxInFlightRequests: command.idempotent ? 1 : undefined })
  await producer.connect()
  const started = Date.now()
  let acked = 0
  for (let n = 0; !stop.asked && !(command.count && n === command.count);) {
    const due = command.per_second ? Math.floor(((Date.now() - started) * command.per_second) / 1000) - n : 100
    const batch = Math.min(due, 100, command.count ? command.count - n : 100)
    if (batch <= 0) {
      await sleep(5)
      continue
    }
    const messages = []
    for (let i = 0; i < batch; i++, n++) {
      messages.push({ value: String((command.first || 0) + n).padStart(8, '0') + '-' + 'vtop'.repeat(16) })
    }
    await producer.send({ topic: command.topic, acks: -1, compression: CompressionTypes[codecs[command.codec || '']], messages })
    acked += batch
  }
  await producer.disconnect()
  return acked
}

// run consumes until stop or count; a crash that kafkajs does not restart from by itself is an error of the application.
// on is called with the consumer before it runs, each with what was read.
async function run(command, stop, config, { on, each }) {
  const consumer = open(command.id).consumer(config)
  let n = 0
  const crashed = new Promise((_, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) reject(payload.error)
      else write({ id: command.id, warn: 'restarts after: ' + payload.error })
    })
  })
  on(consumer)
  await consumer.connect()
  await consumer.subscribe({ topics: [command.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async context => {
      const messages = await each(context, messages => {
        write({ id: command.id, records: messages.map(m => [context.batch.partition, Number(m.offset), m.value.toString()]) })
      })
      n += messages.length
    },
  })
  const ended = (async () => {
    while (!stop.asked && !(command.count && n >= command.count)) await sleep(20)
  })()
  await Promise.race([ended, crashed])
  await consumer.disconnect()
}

// consume needs a group, since kafkajs has no other way. It commits nothing, and keeps its positions itself: whenever a leader changes
// kafkajs joins its group anew, and would go back to what is committed.
function consume(command, stop) {
  const next = {}
  const on = consumer => consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    for (const partition of payload.memberAssignment[command.topic] || []) {
      if (next[partition] !== undefined) consumer.seek({ topic: command.topic, partition, offset: String(next[partition]) })
    }
  })
  const each = async ({ batch }, got) => {
    const messages = batch.messages.filter(m => BigInt(m.offset) >= (next[batch.partition] || 0n)) // of a batch fetched before it joined
    got(messages)
    if (messages.length) next[batch.partition] = BigInt(messages[messages.length - 1].offset) + 1n
    return messages
  }
  return run(command, stop, { groupId: `kafkajs-${process.pid}-${command.id}`, maxWaitTimeInMs: 500 }, { on, each })
}

// group commits each batch as eachBatch is given to: a commit that comes in the middle of a rebalance makes it join again.
function group(command, stop) {
  if (command.protocol === 'consumer') throw new Unsupported('it speaks the classic protocol only')
  if (command.instance) throw new Unsupported('it has no static members')
  const config = { groupId: command.group, sessionTimeout: 6000, heartbeatInterval: 1000, rebalanceTimeout: 10000, maxWaitTimeInMs: 500 }
  const each = async ({ batch, commitOffsetsIfNecessary }, got) => {
    got(batch.messages)
    const offset = String(BigInt(batch.lastOffset()) + 1n)
    await commitOffsetsIfNecessary({ topics: [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }] })
    return batch.messages
  }
  return run(command, stop, config, { on: () => {}, each })
}

const ops = { create_topic, produce, consume, group }
const stops = {}

async function serve(command) {
  stops[command.id] = { asked: false }
  const done = { id: command.id, done: true }
  try {
    done.acked = (await ops[command.op](command, stops[command.id])) || 0
  } catch (e) {
    if (e instanceof Unsupported) done.unsupported = e.message
    else done.error = `${e.name}: ${e.message}`
  }
  write(done)
}

write({ id: 0, hello: { client: 'kafkajs', version: need('kafkajs/package.json').version } })
const running = []
const lines = readline.createInterface({ input: process.stdin })
lines.on('line', line => {
  const command = JSON.parse(line)
  if (command.op === 'stop') stops[command.of].asked = true
  else running.push(serve(command))
})
lines.on('close', async () => {
  for (const stop of Object.values(stops)) stop.asked = true
  await Promise.allSettled(running)
  process.exit(0)
})
