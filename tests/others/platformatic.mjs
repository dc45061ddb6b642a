// Creates a topic, produces with each codec, and consumes in a group, through @platformatic/kafka.
// Arguments: BOOTSTRAP TOPIC.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from "@platformatic/kafka";

const [bootstrap, topic] = process.argv.slice(2);
const base = { clientId: "platformatic", bootstrapBrokers: [bootstrap], timeout: 20000 };

const admin = new Admin(base);
await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 });
let sent = 0;
for (const idempotent of [false, true]) {
  const producer = new Producer({ ...base, serializers: stringSerializers, idempotent });
  for (const compression of ["none", "gzip", "snappy", "lz4"]) {
    const messages = Array.from({ length: 20 }, (_, n) => ({ topic, key: `${n}`, value: `${n}`.padEnd(100, "x"), headers: { h: "x" } }));
    await producer.send({ messages, compression });
    sent += messages.length;
  }
  await producer.close();
}
const consumer = new Consumer({ ...base, groupId: topic, deserializers: stringDeserializers });
const stream = await consumer.consume({ topics: [topic], mode: "earliest", autocommit: false });
setTimeout(() => process.exit(2), 60000).unref();
let read = 0;
for await (const message of stream) {
  if (++read >= sent) {
    await message.commit();
    break;
  }
}
await consumer.close(true);
await admin.describeGroups({ groups: [topic] });
await admin.listGroups();
await admin.deleteGroups({ groups: [topic] });
await admin.deleteTopics({ topics: [topic] });
await admin.close();
console.log(read);
