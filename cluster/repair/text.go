package repair

import "strings"

// validUTF8 drops what is no text: an error may carry what a peer sent.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "") }
