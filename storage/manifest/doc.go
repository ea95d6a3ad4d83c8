// Package manifest implements the description of a sealed segment: which offsets and epochs it holds, the BLAKE3
// hash of each of its chunks, the producer state at its end, and one root over all that.
//
// Compute reads a segment once, in bounded memory, checks its batches and returns its Manifest. The root depends on
// the log alone: the same batches give the same root, and the same manifest file byte for byte, on every replica
// (I9). Encode and Decode are the file; VerifyChunk and VerifyFile compare bytes with it. Walk checks the batches
// of a file that has no manifest yet, and VerifyPath is all of it for the operator's tool, on files and directories
// of a node that does not run.
//
// The package publishes nothing: who writes a manifest, and when, is storage's to decide. Damage is told as
// vtop.ErrDamaged with the place, and never mended here.
package manifest
