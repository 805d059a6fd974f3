// Reads partitions of a topic from their start to their end with segmentio's kafka-go, and prints a JSON object a record.
// Arguments: bootstrap, topic, isolation, partitions (JSON array).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"time"

	"github.com/segmentio/kafka-go"

	"tierlog.test/clients/lines"
)

func main() {
	bootstrap, topic, isolation := os.Args[1], os.Args[2], os.Args[3]
	var partitions []int
	if err := json.Unmarshal([]byte(os.Args[4]), &partitions); err != nil {
		log.Fatal(err)
	}
	level := kafka.ReadUncommitted
	if isolation == "read_committed" {
		level = kafka.ReadCommitted
	}
	out := lines.NewWriter()
	defer out.Flush()
	for _, p := range partitions {
		read(bootstrap, topic, p, level, out)
	}
}

func read(bootstrap, topic string, partition int, level kafka.IsolationLevel, out *lines.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	leader, err := kafka.DialLeader(ctx, "tcp", bootstrap, topic, partition)
	if err != nil {
		log.Fatal(err)
	}
	start, end, err := leader.ReadOffsets()
	leader.Close()
	if err != nil {
		log.Fatal(err)
	}
	if start >= end {
		return
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, Partition: partition,
		IsolationLevel: level, MaxWait: 100 * time.Millisecond, MinBytes: 1, MaxBytes: 4 << 20})
	defer reader.Close()
	if err := reader.SetOffset(start); err != nil {
		log.Fatal(err)
	}
	for {
		limited, stop := context.WithTimeout(ctx, 3*time.Second)
		m, err := reader.ReadMessage(limited)
		stop()
		if errors.Is(err, context.DeadlineExceeded) {
			return // what is left was compacted away, aborted, or is a marker
		}
		if err != nil {
			log.Fatal(err)
		}
		headers := [][2]*string{}
		for _, h := range m.Headers {
			headers = append(headers, lines.Header(h.Key, h.Value))
		}
		out.Write(lines.Record{Partition: int32(partition), Offset: m.Offset, Timestamp: m.Time.UnixMilli(),
			Key: lines.Text(m.Key), Value: lines.Text(m.Value), Headers: headers})
		if m.Offset+1 >= end {
			return
		}
	}
}
