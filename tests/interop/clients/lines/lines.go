// Package lines prints records as the tests read them.
package lines

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"log"
	"os"
)

// Record is one line.
type Record struct {
	Partition     int32        `json:"partition"`
	Offset        int64        `json:"offset"`
	Timestamp     int64        `json:"timestamp"`
	TimestampType string       `json:"timestampType,omitempty"`
	Key           *string      `json:"key"`
	Value         *string      `json:"value"`
	Headers       [][2]*string `json:"headers"`
}

// Writer writes lines to stdout.
type Writer struct {
	buffered *bufio.Writer
	encoder  *json.Encoder
}

// NewWriter makes a Writer; Flush it at the end.
func NewWriter() *Writer {
	buffered := bufio.NewWriterSize(os.Stdout, 1<<20)
	return &Writer{buffered, json.NewEncoder(buffered)}
}

// Write prints one record.
func (w *Writer) Write(r Record) {
	if err := w.encoder.Encode(r); err != nil {
		log.Fatal(err)
	}
}

// Flush writes out what is buffered.
func (w *Writer) Flush() {
	if err := w.buffered.Flush(); err != nil {
		log.Fatal(err)
	}
}

// Text is base64, or null for no bytes at all.
func Text(data []byte) *string {
	if data == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(data)
	return &text
}

// Header is a name and its value, both in base64: a name is any bytes.
func Header(name string, value []byte) [2]*string {
	return [2]*string{Text([]byte(name)), Text(value)}
}

// TimestampType names the type of a batch's timestamps: -1, 0 or 1.
func TimestampType(kind int8) string {
	switch kind {
	case 0:
		return "CreateTime"
	case 1:
		return "LogAppendTime"
	}
	return "NoTimestampType"
}
