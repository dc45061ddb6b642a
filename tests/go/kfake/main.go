// Command kfake runs franz-go's fake cluster of one broker, prints its address, and ends with standard input.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
}
