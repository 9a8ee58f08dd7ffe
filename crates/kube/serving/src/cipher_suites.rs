//! Cipher suites by Go's names.

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;

/// Which suites of TLS 1.2 are spoken. Those of TLS 1.3 are all good, and are not up for choice, as in Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CipherSuites(Vec<CipherSuite>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Cipher suite {0} not supported or doesn't exist")]
pub struct UnknownSuite(String);

impl CipherSuites {
    /// Names that Go knows and we do not speak (CBC, RSA key exchange, RC4) are passed over.
    pub fn named(names: &[String]) -> Result<Self, UnknownSuite> {
        use CipherSuite::*;
        let mut suites = Vec::new();
        for name in names {
            suites.push(match name.as_str() {
                "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => {
                    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                }
                "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => {
                    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
                }
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"
                | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => {
                    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
                }
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"
                | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => {
                    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
                }
                other if OTHERS.contains(&other) => continue,
                other => return Err(UnknownSuite(other.to_owned())),
            });
        }
        Ok(Self(suites))
    }

    pub(super) fn restrict(&self, provider: &mut CryptoProvider) {
        provider
            .cipher_suites
            .retain(|one| one.tls13().is_some() || self.0.contains(&one.suite()));
    }
}

/// Known, and either always spoken (TLS 1.3) or never.
const OTHERS: [&str; 19] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(names: &[&str]) -> Vec<CipherSuite> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut provider = rustls::crypto::ring::default_provider();
        CipherSuites::named(&names).unwrap().restrict(&mut provider);
        let suites = provider.cipher_suites.iter();
        let old = suites.filter(|one| one.tls13().is_none());
        old.map(|one| one.suite()).collect()
    }

    #[test]
    fn only_those_named() {
        assert_eq!(
            spoken(&[
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_RSA_WITH_RC4_128_SHA"
            ]),
            [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
        );
        assert_eq!(spoken(&["TLS_AES_128_GCM_SHA256"]), []);
        let error = CipherSuites::named(&["foo".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Cipher suite foo not supported or doesn't exist"
        );
    }
}
