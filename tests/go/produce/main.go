// Command produce sends numbered records at a fixed rate through franz-go or Sarama, to two partitions in turns, until
// a file exists. Usage: produce BOOTSTRAP TOPIC STOP-FILE idempotent|plain|sarama. It prints the number of records, and
// each error.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pause      = 20 * time.Millisecond
	recordsMax = 20000
	partitions = 2
	patience   = 60 * time.Second
)

// producer sends a record without waiting for it, and at the end waits for all.
type producer interface {
	send(value string, partition int32)
	flush()
}

func main() {
	log.SetFlags(0)
	its := producer(nil)
	if os.Args[4] == "sarama" {
		its = newSarama()
	} else {
		its = newFranz(os.Args[4] == "idempotent")
	}
	number := 0
	for ; number < recordsMax; number++ {
		if _, err := os.Stat(os.Args[3]); err == nil {
			break
		}
		its.send(strconv.Itoa(number), int32(number%partitions))
		time.Sleep(pause)
	}
	its.flush()
	fmt.Println(number)
}

type ofFranz struct{ client *kgo.Client }

// newFranz makes a producer; brokers before 0.11 have no idempotent ones.
func newFranz(idempotent bool) ofFranz {
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]),
		kgo.DefaultProduceTopic(os.Args[2]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(patience),
	}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	return ofFranz{client}
}

func (its ofFranz) send(value string, partition int32) {
	record := &kgo.Record{Value: []byte(value), Partition: partition}
	its.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
		if err != nil {
			log.Print(err)
		}
	})
}

func (its ofFranz) flush() {
	ended, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := its.client.Flush(ended); err != nil {
		log.Fatal(err)
	}
}

type ofSarama struct{ client sarama.AsyncProducer }

func newSarama() ofSarama {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1 // or it is not idempotent
	client, err := sarama.NewAsyncProducer([]string{os.Args[1]}, config)
	if err != nil {
		log.Fatal(err)
	}
	return ofSarama{client}
}

func (its ofSarama) send(value string, partition int32) {
	its.client.Input() <- &sarama.ProducerMessage{
		Topic: os.Args[2], Value: sarama.StringEncoder(value), Partition: partition,
	}
}

func (its ofSarama) flush() {
	if err := its.client.Close(); err != nil {
		log.Fatal(err)
	}
}
