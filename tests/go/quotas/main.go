// Command quotas sets, shows and deletes client quotas through libraries that people's own tools use: franz-go's kadm
// (Redpanda's rpk and console) and Sarama (the Terraform provider of Mongey).
//
// Usage: quotas kadm|sarama BOOTSTRAP. It prints one JSON line after each step: the entities found, with values.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const rate = "producer_byte_rate"

// part is one type and name of an entity; an empty name is the default.
type part struct{ kind, name string }

// tool is a library under test.
type tool interface {
	alter(entity []part, value *float64)
	// show returns the values by entity. Kinds: those that entities must have, with any name; nil for all.
	show(kinds []string) map[string]float64
}

var entities = [][]part{
	{{"client-id-prefix", "etl-"}},
	{{"user", "alice"}, {"client-id-prefix", "etl-"}},
	{{"user", "alice"}, {"client-id", "etl-1"}},
	{{"client-id", ""}},
}

func main() {
	log.SetFlags(0)
	var its tool
	switch os.Args[1] {
	case "kadm":
		client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[2]))
		check(err)
		its = ofKadm{kadm.NewClient(client)}
	case "sarama":
		config := sarama.NewConfig()
		config.Version = sarama.V3_6_0_0
		admin, err := sarama.NewClusterAdmin([]string{os.Args[2]}, config)
		check(err)
		its = ofSarama{admin}
	}
	for number, entity := range entities {
		value := float64(1000 * (number + 1))
		its.alter(entity, &value)
	}
	say(its.show(nil))
	say(its.show([]string{"client-id-prefix"}))
	say(its.show([]string{"client-id"}))
	for _, entity := range entities {
		its.alter(entity, nil)
	}
	say(its.show(nil))
}

type ofKadm struct{ client *kadm.Client }

func (its ofKadm) alter(entity []part, value *float64) {
	entry := kadm.AlterClientQuotaEntry{Ops: []kadm.AlterClientQuotaOp{{Key: rate, Remove: value == nil}}}
	if value != nil {
		entry.Ops[0].Value = *value
	}
	for _, each := range entity {
		entry.Entity = append(entry.Entity, kadm.ClientQuotaEntityComponent{Type: each.kind, Name: pointer(each.name)})
	}
	altered, err := its.client.AlterClientQuotas(context.Background(), []kadm.AlterClientQuotaEntry{entry})
	check(err)
	for _, each := range altered {
		check(each.Err)
	}
}

func (its ofKadm) show(kinds []string) map[string]float64 {
	var wanted []kadm.DescribeClientQuotaComponent
	for _, kind := range kinds {
		wanted = append(wanted, kadm.DescribeClientQuotaComponent{Type: kind, MatchType: kmsg.QuotasMatchTypeAny})
	}
	described, err := its.client.DescribeClientQuotas(context.Background(), false, wanted)
	check(err)
	found := map[string]float64{}
	for _, quota := range described {
		var names []part
		for _, each := range quota.Entity {
			names = append(names, part{each.Type, text(each.Name)})
		}
		for _, value := range quota.Values {
			found[named(names)] = value.Value
		}
	}
	return found
}

type ofSarama struct{ admin sarama.ClusterAdmin }

func (its ofSarama) alter(entity []part, value *float64) {
	var components []sarama.QuotaEntityComponent
	for _, each := range entity {
		component := sarama.QuotaEntityComponent{EntityType: sarama.QuotaEntityType(each.kind), Name: each.name}
		component.MatchType = sarama.QuotaMatchExact
		if each.name == "" {
			component.MatchType = sarama.QuotaMatchDefault
		}
		components = append(components, component)
	}
	op := sarama.ClientQuotasOp{Key: rate, Remove: value == nil}
	if value != nil {
		op.Value = *value
	}
	check(its.admin.AlterClientQuotas(components, op, false))
}

func (its ofSarama) show(kinds []string) map[string]float64 {
	wanted := []sarama.QuotaFilterComponent{}
	for _, kind := range kinds {
		component := sarama.QuotaFilterComponent{EntityType: sarama.QuotaEntityType(kind), MatchType: sarama.QuotaMatchAny}
		wanted = append(wanted, component)
	}
	described, err := its.admin.DescribeClientQuotas(wanted, false)
	check(err)
	found := map[string]float64{}
	for _, quota := range described {
		var names []part
		for _, each := range quota.Entity {
			names = append(names, part{string(each.EntityType), each.Name})
		}
		for _, value := range quota.Values {
			found[named(names)] = value
		}
	}
	return found
}

func named(parts []part) string {
	var names []string
	for _, each := range parts {
		names = append(names, each.kind+"="+each.name)
	}
	sort.Strings(names)
	return strings.Join(names, ",")
}

func pointer(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}

func text(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

func say(found map[string]float64) {
	line, err := json.Marshal(found)
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
