// Creates a topic, produces with each codec, and consumes in a group, through KafkaJS. Arguments: BOOTSTRAP TOPIC.
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require("kafkajs");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR });

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
  let sent = 0;
  for (const idempotent of [false, true]) {
    const producer = kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : 5 });
    await producer.connect();
    for (const compression of [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy]) {
      const messages = Array.from({ length: 20 }, (_, n) => ({ key: `${n}`, value: `${n}`.padEnd(100, "x"), headers: { h: "x" } }));
      await producer.send({ topic, messages, compression });
      sent += messages.length;
    }
    await producer.disconnect();
  }
  const transactional = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 });
  await transactional.connect();
  const transaction = await transactional.transaction();
  await transaction.send({ topic, messages: [{ value: "in a transaction" }] });
  await transaction.commit();
  await transactional.disconnect();
  sent += 1;
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let read = 0;
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`read ${read} of ${sent}`)), 60000).unref();
    consumer.run({ eachMessage: async () => void (++read >= sent && resolve()) }).catch(reject);
  });
  await consumer.disconnect();
  await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic }] });
  await admin.describeGroups([topic]);
  await admin.fetchOffsets({ groupId: topic, topics: [topic] });
  await admin.listGroups();
  await admin.deleteGroups([topic]);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log(read);
}

main().catch((error) => { console.error(error); process.exit(1); });
