package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS are the settings of encrypted connections. The zero value means none.
type TLS struct {
	// Enabled turns TLS on; any other field does so too.
	Enabled bool
	// CAFile holds PEM certificates to trust instead of the system's.
	CAFile string
	// CertFile and KeyFile are our certificate and its key in PEM, for mutual TLS. They are read again for each
	// connection, so that renewed ones are picked up.
	CertFile, KeyFile string
	// ServerName is the name that certificates must have; empty means that of each address.
	ServerName string
	// InsecureSkipVerify accepts any certificate. A warning is logged at each start.
	InsecureSkipVerify bool
	// Config replaces all of the above.
	Config *tls.Config
}

// IsZero reports whether nothing is set, so that connections are not encrypted.
func (t TLS) IsZero() bool { return t == TLS{} }

// config reads the files.
func (t TLS) config() (*tls.Config, error) {
	if t.Config != nil {
		return t.Config.Clone(), nil
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the user's choice, logged at each start
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("TLS.CAFile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS.CAFile: %s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("TLS.CertFile %s: %w", t.CertFile, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil { // tell now rather than at the first connection
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}
