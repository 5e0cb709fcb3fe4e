// Command vectors prints the decisions of OpenTelemetry's Go code, for tests/record/test_sampling.py:
//
//	go run . > ../go.json
//
// TraceIDRatioBased is the SDK's. The SDK has no consistent probability sampler yet; thresholds, randomness and
// decisions of that are those of the Collector's package for it.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"runtime/debug"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/sampling"
	"go.opentelemetry.io/collector/pdata/pcommon"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type decisions struct {
	Ratio     float64  `json:"ratio"`
	Precision int      `json:"precision,omitempty"`
	Th        string   `json:"th,omitempty"`
	Edges     []string `json:"edges"`
	// One digit per id: the common ids, then the edges.
	Kept string `json:"kept"`
}

type randomValue struct {
	TraceID string `json:"trace_id"`
	Rv      string `json:"rv"`
	Th      string `json:"th"`
	Kept    bool   `json:"kept"`
}

type vectors struct {
	Versions   map[string]string `json:"versions"`
	IDs        []string          `json:"ids"`
	Legacy     []decisions       `json:"legacy"`
	Consistent []decisions       `json:"consistent"`
	Random     []randomValue     `json:"random"`
}

var ratios = []float64{1, 0.9999, 0.75, 0.5, 1.0 / 3, 0.25, 0.2, 0.1, 0.0625, 0.01, 0.001, 0.0001, 1e-5, 1e-6}

func main() {
	out := vectors{Versions: versions(), IDs: append(ordinary(), edges(0)...)}
	for _, ratio := range append(ratios, 0) {
		out.Legacy = append(out.Legacy, legacy(ratio, out.IDs))
	}
	for _, ratio := range ratios {
		for _, precision := range []int{1, 4, 14} {
			out.Consistent = append(out.Consistent, consistent(ratio, precision, out.IDs))
		}
	}
	out.Random = random()
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(out); err != nil {
		panic(err)
	}
}

func legacy(ratio float64, common []string) decisions {
	sampler := sdk.TraceIDRatioBased(ratio)
	// Go compares 63 bits: what lies around its bound, with either lowest bit.
	at := edges(uint64(ratio*(1<<62)) << 2)
	kept := func(id [16]byte) bool {
		return sampler.ShouldSample(sdk.SamplingParameters{TraceID: trace.TraceID(id)}).Decision == sdk.RecordAndSample
	}
	return decisions{Ratio: ratio, Edges: at, Kept: digits(append(common[:len(common):len(common)], at...), kept)}
}

func consistent(ratio float64, precision int, common []string) decisions {
	threshold, err := sampling.ProbabilityToThresholdWithPrecision(ratio, precision)
	if err != nil {
		panic(err)
	}
	at := edges(threshold.Unsigned())
	kept := func(id [16]byte) bool {
		return threshold.ShouldSample(sampling.TraceIDToRandomness(pcommon.TraceID(id)))
	}
	all := append(common[:len(common):len(common)], at...)
	return decisions{Ratio: ratio, Precision: precision, Th: threshold.TValue(), Edges: at, Kept: digits(all, kept)}
}

func random() []randomValue {
	var out []randomValue
	for number, th := range []string{"0", "8", "c", "aaab", "fd70a", "ffffffffffffff", "1", "00000000000001"} {
		threshold, err := sampling.TValueToThreshold(th)
		if err != nil {
			panic(err)
		}
		for _, rv := range []uint64{0, threshold.Unsigned() - 1, threshold.Unsigned(), threshold.Unsigned() + 1, 1<<56 - 1} {
			r, err := sampling.UnsignedToRandomness(rv & (1<<56 - 1))
			if err != nil {
				panic(err)
			}
			id := id(uint64(number)<<40 ^ rv<<7)
			out = append(out, randomValue{id, r.RValue(), th, threshold.ShouldSample(r)})
		}
	}
	return out
}

func digits(ids []string, kept func([16]byte) bool) string {
	text := make([]byte, len(ids))
	for position, encoded := range ids {
		var id [16]byte
		if _, err := hex.Decode(id[:], []byte(encoded)); err != nil {
			panic(err)
		}
		text[position] = '0'
		if kept(id) {
			text[position] = '1'
		}
	}
	return string(text)
}

// edges returns ids whose low bits lie around a bound, and around the ends and the middle of the range.
func edges(bound uint64) []string {
	if bound != 0 {
		return []string{id(bound - 2), id(bound - 1), id(bound), id(bound + 1), id(bound | 0xa5<<56)}
	}
	var out []string
	for _, low := range []uint64{0, 1, 1<<55 - 1, 1 << 55, 1<<56 - 1, 1 << 56, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1<<64 - 1} {
		out = append(out, id(low))
	}
	return out
}

// ordinary returns ids as SplitMix64 makes them from the numbers 1 to 24.
func ordinary() []string {
	var out []string
	for number := uint64(1); number <= 24; number++ {
		z := number * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		out = append(out, id(z^z>>31))
	}
	return out
}

func id(low uint64) string {
	var bytes [16]byte
	binary.BigEndian.PutUint64(bytes[:8], 0x4bf92f3577b34da6)
	binary.BigEndian.PutUint64(bytes[8:], low)
	return hex.EncodeToString(bytes[:])
}

func versions() map[string]string {
	out := map[string]string{}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		switch module.Path {
		case "go.opentelemetry.io/otel/sdk", "github.com/open-telemetry/opentelemetry-collector-contrib/pkg/sampling":
			out[module.Path] = module.Version
		}
	}
	return out
}
