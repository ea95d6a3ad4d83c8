package harness

import (
	"net"
	"testing"
)

// Process ids that are 25,000 apart begin to look at the same network.
func TestFreeSubnet_IsNobodyElses(t *testing.T) {
	var taken []net.Addr
	seen := map[string]bool{}
	for _, pid := range []int{10_027, 12_544, 35_027, 60_027, 4_185_027} {
		subnet, err := freeSubnet(pid, taken)
		if err != nil || seen[subnet] {
			t.Fatalf("process %d: %q, %v; taken are %v", pid, subnet, err, taken)
		}
		seen[subnet] = true
		taken = append(taken, &net.IPNet{IP: net.ParseIP(subnet + ".254"), Mask: net.CIDRMask(24, 32)})
	}
}
