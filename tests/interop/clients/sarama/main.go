// Reads partitions of a topic from their start to their end with sarama, and prints a JSON object a record.
// Arguments: bootstrap, topic, isolation, partitions (JSON array).
package main

import (
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"

	"tierlog.test/clients/lines"
)

func main() {
	bootstrap, topic, isolation := os.Args[1], os.Args[2], os.Args[3]
	var partitions []int32
	if err := json.Unmarshal([]byte(os.Args[4]), &partitions); err != nil {
		log.Fatal(err)
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	if isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	out := lines.NewWriter()
	defer out.Flush()
	for _, p := range partitions {
		read(client, consumer, topic, p, out)
	}
}

func read(client sarama.Client, consumer sarama.Consumer, topic string, partition int32, out *lines.Writer) {
	start, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil {
		log.Fatal(err)
	}
	end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		log.Fatal(err)
	}
	if start >= end {
		return
	}
	consumed, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		log.Fatal(err)
	}
	defer consumed.Close()
	for {
		select {
		case m := <-consumed.Messages():
			headers := [][2]*string{}
			for _, h := range m.Headers {
				headers = append(headers, lines.Header(string(h.Key), h.Value))
			}
			out.Write(lines.Record{Partition: partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(),
				Key: lines.Text(m.Key), Value: lines.Text(m.Value), Headers: headers})
			if m.Offset+1 >= end {
				return
			}
		case err := <-consumed.Errors():
			log.Fatal(err)
		case <-time.After(3 * time.Second): // what is left was compacted away, aborted, or is a marker
			return
		}
	}
}
