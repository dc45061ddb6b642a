// Command session creates a topic, produces with each codec, and consumes in a group, through one library.
// Usage: session BOOTSTRAP TOPIC sarama|franz-go|kafka-go
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	records  = 5
	patience = 60 * time.Second
)

var (
	bootstrap, topic = os.Args[1], os.Args[2]
	ended            context.Context
)

func main() {
	log.SetFlags(0)
	var stop context.CancelFunc
	ended, stop = context.WithTimeout(context.Background(), patience)
	defer stop()
	sessions := map[string]func() int{"sarama": ofSarama, "franz-go": ofFranz, "kafka-go": ofKafkaGo}
	fmt.Println(sessions[os.Args[3]]())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ofFranz() int {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	check(err)
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(ended, 2, 1, nil, topic)
	check(err)
	for _, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
		check(err)
		for number := 0; number < records; number++ {
			record := &kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte(fmt.Sprint(number))}
			check(producer.ProduceSync(ended, record).FirstErr())
		}
		producer.Close()
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(err)
	read := 0
	for read < records*len(codecs) {
		fetched := consumer.PollFetches(ended)
		check(fetched.Err())
		read += fetched.NumRecords()
	}
	check(consumer.CommitUncommittedOffsets(ended))
	consumer.Close()
	_, err = admin.DescribeTopicConfigs(ended, topic)
	check(err)
	_, err = admin.DescribeGroups(ended, topic)
	check(err)
	_, err = admin.DeleteTopics(ended, topic)
	check(err)
	client.Close()
	return read
}

type member struct{ read, wanted int }

func (its *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (its *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (its *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if its.read++; its.read >= its.wanted {
			session.Commit()
			return nil
		}
	}
	return nil
}

func ofSarama() int {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config)
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
		sarama.CompressionZSTD,
	}
	for _, codec := range codecs {
		config.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
		check(err)
		for number := 0; number < records; number++ {
			value := sarama.StringEncoder(fmt.Sprint(number))
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value})
			check(err)
		}
		check(producer.Close())
	}
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, topic, config)
	check(err)
	its := &member{wanted: records * len(codecs)}
	for its.read < its.wanted {
		check(group.Consume(ended, []string{topic}, its))
	}
	check(group.Close())
	_, err = admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	check(err)
	_, err = admin.DescribeConsumerGroups([]string{topic})
	check(err)
	_, err = admin.ListConsumerGroups()
	check(err)
	check(admin.DeleteTopic(topic))
	check(admin.Close())
	return its.read
}

func ofKafkaGo() int {
	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	_, err := client.CreateTopics(ended, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	check(err)
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for _, codec := range codecs {
		writer := &kafka.Writer{
			Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codec, RequiredAcks: kafka.RequireAll,
			BatchTimeout: time.Millisecond,
		}
		for number := 0; number < records; number++ {
			check(writer.WriteMessages(ended, kafka.Message{Key: []byte("key"), Value: []byte(fmt.Sprint(number))}))
		}
		check(writer.Close())
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: topic, Topic: topic, StartOffset: kafka.FirstOffset,
	})
	read := 0
	for ; read < records*len(codecs); read++ {
		_, err = reader.ReadMessage(ended)
		check(err)
	}
	check(reader.Close())
	_, err = client.Metadata(ended, &kafka.MetadataRequest{Topics: []string{topic}})
	check(err)
	_, err = client.DescribeConfigs(ended, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	check(err)
	_, err = client.ListGroups(ended, &kafka.ListGroupsRequest{})
	check(err)
	_, err = client.DeleteTopics(ended, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	check(err)
	return read
}
