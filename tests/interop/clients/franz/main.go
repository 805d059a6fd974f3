// Reads partitions of a topic from their start to their end with franz-go, and prints a JSON object a record.
// Arguments: bootstrap, topic, isolation, partitions (JSON array).
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tierlog.test/clients/lines"
)

func main() {
	bootstrap, topic, isolation := os.Args[1], os.Args[2], os.Args[3]
	var partitions []int32
	if err := json.Unmarshal([]byte(os.Args[4]), &partitions); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	committed := isolation == "read_committed"
	ends := endsOf(ctx, bootstrap, topic, committed)
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	offsets := map[int32]kgo.Offset{}
	left := map[int32]int64{}
	for _, p := range partitions {
		offsets[p] = kgo.NewOffset().AtStart()
		if ends[p][0] < ends[p][1] {
			left[p] = ends[p][1]
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}), kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	out := lines.NewWriter()
	defer out.Flush()
	quiet := 0
	for len(left) > 0 {
		polled, stop := context.WithTimeout(ctx, 2*time.Second)
		fetches := client.PollFetches(polled)
		stop()
		if ctx.Err() != nil {
			out.Flush()
			log.Fatalf("records are missing: %v", left)
		}
		seen := false
		fetches.EachError(func(t string, p int32, err error) {
			if err != context.DeadlineExceeded {
				log.Fatalf("%s-%d: %v", t, p, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			seen = true
			if !r.Attrs.IsControl() {
				headers := [][2]*string{}
				for _, h := range r.Headers {
					headers = append(headers, lines.Header(h.Key, h.Value))
				}
				out.Write(lines.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(),
					TimestampType: lines.TimestampType(r.Attrs.TimestampType()), Key: lines.Text(r.Key), Value: lines.Text(r.Value), Headers: headers})
			}
			if end, there := left[r.Partition]; there && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
		// What lies behind the last record of a partition was compacted away or aborted: nothing tells the end of it.
		if seen {
			quiet = 0
		} else if quiet++; quiet > 1 {
			break
		}
	}
}

func endsOf(ctx context.Context, bootstrap, topic string, committed bool) map[int32][2]int64 {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		log.Fatal(err)
	}
	list := admin.ListEndOffsets
	if committed {
		list = admin.ListCommittedOffsets
	}
	found, err := list(ctx, topic)
	if err != nil {
		log.Fatal(err)
	}
	ends := map[int32][2]int64{}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			log.Fatal(o.Err)
		}
		end, _ := found.Lookup(o.Topic, o.Partition)
		ends[o.Partition] = [2]int64{o.Offset, end.Offset}
	})
	return ends
}
