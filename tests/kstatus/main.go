// Command kstatus reads objects as lines of JSON and prints for each, as a line of JSON, what the library kstatus says.
//
// Helm and Flux use this library to tell whether an object is finished. The tests ask it what they would see.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func judge(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	answers := json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(line); err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		if err := answers.Encode(verdict{string(result.Status), result.Message}); err != nil {
			return err
		}
	}
}

func main() {
	if err := judge(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
