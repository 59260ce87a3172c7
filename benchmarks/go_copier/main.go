// The comparison in Go: programs put together from what nats.go's documentation shows.
//
// go-copier URL WAY copies, where WAY is one of
//
//   - ordered: an ordered consumer of BENCH, republished to bridge.bench.> with the headers that republish adds; nothing
//     is acknowledged.
//   - pipelined: an ordered consumer of BENCH, copied to COPY with PublishMsgAsync, each message with an id.
//   - one-at-a-time: a durable consumer of BENCH; each message is stored in COPY before it is acknowledged and the next
//     one is looked at.
//
// go-copier URL WAY COUNT ends after this many messages, where WAY is one of
//
//   - read: an ordered consumer of BENCH.
//   - publish: messages of 128 bytes to rows.N with PublishMsgAsync, each with an id, 4,096 of them unanswered.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, way string, more []string) error {
	connection, err := nats.Connect(url)
	if err != nil {
		return err
	}
	if len(more) == 1 {
		count, err := strconv.Atoi(more[0])
		if err != nil {
			return err
		}
		if way == "read" {
			return read(connection, count)
		}
		return publish(connection, count)
	}
	// As many answers may be missing as a stream from 2.11 on takes into its queue.
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(8000))
	if err != nil {
		return err
	}
	switch way {
	case "ordered":
		last := map[string]uint64{}
		return consumeInOrder(js, func(message jetstream.Msg) error {
			return connection.PublishMsg(republished(message, last))
		})
	case "pipelined":
		return consumeInOrder(js, func(message jetstream.Msg) error {
			_, err := js.PublishMsgAsync(copied(message))
			return err
		})
	case "one-at-a-time":
		consumer, err := js.CreateConsumer(context.Background(), "BENCH", jetstream.ConsumerConfig{
			Durable: "copier", AckPolicy: jetstream.AckExplicitPolicy,
		})
		if err != nil {
			return err
		}
		return consume(consumer, func(message jetstream.Msg) error {
			if _, err := js.PublishMsg(context.Background(), copied(message)); err != nil {
				return err
			}
			return message.Ack()
		})
	}
	return fmt.Errorf("there is no way '%s'", way)
}

func read(connection *nats.Conn, count int) error {
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	consumer, err := js.OrderedConsumer(context.Background(), "BENCH", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	all := make(chan struct{})
	_, err = consumer.Consume(func(jetstream.Msg) {
		if count--; count == 0 {
			close(all)
		}
	})
	if err != nil {
		return err
	}
	<-all
	return nil
}

func publish(connection *nats.Conn, count int) error {
	failed := make(chan error, 1)
	handled := func(_ jetstream.JetStream, _ *nats.Msg, err error) {
		select {
		case failed <- err:
		default:
		}
	}
	js, err := jetstream.New(
		connection, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncErrHandler(handled),
	)
	if err != nil {
		return err
	}
	body := bytes.Repeat([]byte("x"), 128)
	for number := range count {
		message := nats.NewMsg("rows." + strconv.Itoa(number%1000))
		message.Data = body
		message.Header.Set("Nats-Msg-Id", "row-"+strconv.Itoa(number))
		if _, err := js.PublishMsgAsync(message, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	<-js.PublishAsyncComplete()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func consumeInOrder(js jetstream.JetStream, handle func(jetstream.Msg) error) error {
	consumer, err := js.OrderedConsumer(context.Background(), "BENCH", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	return consume(consumer, handle)
}

func consume(consumer jetstream.Consumer, handle func(jetstream.Msg) error) error {
	failed := make(chan error, 1)
	fmt.Fprintln(os.Stderr, "copier ready")
	_, err := consumer.Consume(func(message jetstream.Msg) {
		if err := handle(message); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	return <-failed
}

func republished(message jetstream.Msg, last map[string]uint64) *nats.Msg {
	metadata, _ := message.Metadata()
	copy := nats.NewMsg("bridge." + message.Subject())
	for name, values := range message.Headers() {
		copy.Header[name] = values
	}
	copy.Header.Set("Nats-Stream", metadata.Stream)
	copy.Header.Set("Nats-Subject", message.Subject())
	copy.Header.Set("Nats-Sequence", strconv.FormatUint(metadata.Sequence.Stream, 10))
	copy.Header.Set("Nats-Time-Stamp", metadata.Timestamp.UTC().Format(time.RFC3339Nano))
	copy.Header.Set("Nats-Last-Sequence", strconv.FormatUint(last[message.Subject()], 10))
	last[message.Subject()] = metadata.Sequence.Stream
	copy.Data = message.Data()
	return copy
}

func copied(message jetstream.Msg) *nats.Msg {
	metadata, _ := message.Metadata()
	copy := nats.NewMsg("copy." + strings.TrimPrefix(message.Subject(), "bench."))
	for name, values := range message.Headers() {
		copy.Header[name] = values
	}
	sequence := strconv.FormatUint(metadata.Sequence.Stream, 10)
	copy.Header.Set("Nats-Msg-Id", "copy-"+sequence)
	copy.Header.Set("Copied-From", metadata.Stream+" "+sequence)
	copy.Data = message.Data()
	return copy
}
