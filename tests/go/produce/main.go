// Command produce sends numbered records at a fixed rate through franz-go, to two partitions in turns, until a file
// exists. Usage: produce BOOTSTRAP TOPIC STOP-FILE idempotent|plain. It prints the number of records, and each error.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pause      = 20 * time.Millisecond
	recordsMax = 20000
	partitions = 2
	patience   = 60 * time.Second
)

func main() {
	log.SetFlags(0)
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]),
		kgo.DefaultProduceTopic(os.Args[2]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(patience),
	}
	if os.Args[4] == "plain" { // brokers before 0.11 have no idempotent producers
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	number := 0
	for ; number < recordsMax; number++ {
		if _, err := os.Stat(os.Args[3]); err == nil {
			break
		}
		record := &kgo.Record{Value: []byte(strconv.Itoa(number)), Partition: int32(number % partitions)}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Print(err)
			}
		})
		time.Sleep(pause)
	}
	ended, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.Flush(ended); err != nil {
		log.Fatal(err)
	}
	fmt.Println(number)
}
