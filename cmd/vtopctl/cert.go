package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/transport/tlsid"
)

const (
	caCertFile = "ca.crt"
	caKeyFile  = "ca.key"
)

func certCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make the certificates of a cluster",
		Long: `Makes one certificate authority for a cluster, and certificates for its nodes and operators. With --tls-cert,
--tls-key and --tls-ca on vtopd, the peer and admin planes are mutual TLS bound to the node's name.

  vtopctl cert init --dir certs
  vtopctl cert issue n1 --dir certs --host 10.0.0.1
  vtopctl cert issue alice --dir certs --operator
ca.key belongs on no node: keep it where certificates are issued.`,
	}
	cmd.AddCommand(certInitCommand(), certIssueCommand())
	return cmd
}

func certInitCommand() *cobra.Command {
	var dir, name string
	var days int
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the certificate authority of a cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ca, err := tlsid.NewAuthority(name, time.Duration(days)*24*time.Hour, time.Now())
			if err != nil {
				return err
			}
			key, err := ca.KeyPEM()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			if err := writeNew(filepath.Join(dir, caKeyFile), key, 0o600); err != nil {
				return err
			}
			if err := writeNew(filepath.Join(dir, caCertFile), ca.CertPEM(), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s and %s made, valid until %s\n", filepath.Join(dir, caCertFile), filepath.Join(dir, caKeyFile), moment(ca.NotAfter()))
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "certs", "directory to write to")
	cmd.Flags().StringVar(&name, "name", "vtop", "common name of the authority")
	cmd.Flags().IntVar(&days, "days", 3650, "days of validity")
	return cmd
}

func certIssueCommand() *cobra.Command {
	var dir string
	var hosts []string
	var days int
	var operator bool
	cmd := &cobra.Command{
		Use:   "issue NAME",
		Short: "Make a certificate for a node, or for an operator",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ca, err := readAuthority(dir)
			if err != nil {
				return err
			}
			subject := tlsid.Subject{Role: tlsid.Node, Name: vtop.NodeName(args[0])}
			if operator {
				subject.Role = tlsid.Operator
			}
			cert, key, err := ca.Issue(tlsid.Request{Subject: subject, Hosts: hosts, Valid: time.Duration(days) * 24 * time.Hour}, time.Now())
			if err != nil {
				return usagef("%w", err)
			}
			base := filepath.Join(dir, args[0])
			// The key first: a certificate without its key would look like a finished pair.
			if err := writeNew(base+".key", key, 0o600); err != nil {
				return err
			}
			if err := writeNew(base+".crt", cert, 0o644); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s.crt and %s.key made for %s %s\n", base, base, subject.Role, subject.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "certs", "directory of the authority; the certificate is written there")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "DNS name or IP address of the node, for browsers; may be repeated")
	cmd.Flags().IntVar(&days, "days", 397, "days of validity")
	cmd.Flags().BoolVar(&operator, "operator", false, "for a person with vtopctl instead of a node")
	return cmd
}

func readAuthority(dir string) (*tlsid.Authority, error) {
	cert, err := os.ReadFile(filepath.Join(dir, caCertFile))
	if err != nil {
		return nil, usagef("%w: make an authority first with vtopctl cert init --dir %s", err, dir)
	}
	key, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, usagef("%w", err)
	}
	return tlsid.ParseAuthority(cert, key)
}

// writeNew never overwrites: a key that is replaced by mistake takes a cluster down.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s exists: remove it yourself if it is to be replaced", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
