//! TLS configuration: our certificates, and which client certificates are accepted or required.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DistinguishedName, ServerConfig, SignatureScheme};

use super::ca_bundle::{CaBundle, TrustError};
use super::cipher_suites::CipherSuites;
use super::self_signed::{SelfSigned, SelfSignedError};
use super::sni::{Set, Shown};

#[derive(Debug, Clone)]
pub struct Tls {
    pub certificate: Certificate,
    /// Others, for clients that call us by other names.
    pub named: Vec<NamedFiles>,
    pub clients: Clients,
    /// Offer HTTP/2 beside HTTP/1.1.
    pub http2: bool,
    /// Nothing older than TLS 1.3.
    pub tls13_only: bool,
    /// `None`: all that are good.
    pub suites: Option<CipherSuites>,
}

impl Tls {
    pub fn new(certificate: Certificate) -> Self {
        Self {
            certificate,
            named: Vec::new(),
            clients: Clients::Ignored,
            http2: true,
            tls13_only: false,
            suites: None,
        }
    }
}

/// What the server shows.
#[derive(Debug, Clone)]
pub enum Certificate {
    /// Taken anew when the files change.
    Files(KeyPairFiles),
    /// Made here, for those who have none.
    SelfSigned(SelfSigned),
    Given(Arc<CertifiedKey>),
}

/// A certificate chain, leaf first, and its key, both PEM.
#[derive(Debug, Clone)]
pub struct KeyPairFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A certificate for some names; without any, for those it is made out to.
#[derive(Debug, Clone)]
pub struct NamedFiles {
    pub files: KeyPairFiles,
    pub names: Vec<String>,
}

/// What clients show.
#[derive(Debug, Clone)]
pub enum Clients {
    /// They are not asked.
    Ignored,
    /// They are asked, and may refuse. Any certificate is let through whose key the client holds; the service judges
    /// it with [`Peer::verified_by`](super::Peer::verified_by). The authorities only help clients to choose.
    Requested(Vec<CaBundle>),
    /// Without a certificate of these authorities there is no connection.
    Required(CaBundle),
    /// As `Required`; the authorities are taken anew when the file changes.
    RequiredByFile(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("read {}", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("client authority {}", path.display())]
    Authority {
        path: PathBuf,
        #[source]
        source: TrustError,
    },
    #[error("read client authority {}", path.display())]
    ReadAuthority {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("certificate {}", path.display())]
    Config {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error(transparent)]
    SelfSigned(#[from] SelfSignedError),
    #[error("TLS cannot be configured")]
    Setup(#[source] rustls::Error),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A chain and a key in PEM as one thing to serve with.
pub fn certified_key(chain_pem: &[u8], key_pem: &[u8]) -> Result<Arc<CertifiedKey>, KeyPairError> {
    let chain = CertificateDer::pem_slice_iter(chain_pem).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key_pem)?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, &provider())?))
}

#[derive(Debug, thiserror::Error)]
pub enum KeyPairError {
    #[error("not PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("certificate and key cannot be used together")]
    Pair(#[from] rustls::Error),
}

impl KeyPairFiles {
    fn load(&self) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|source| TlsError::Pem {
            path: self.key.clone(),
            source,
        })?;
        let pair = CertifiedKey::from_der(chain, key, &provider());
        let pair = pair.map_err(|source| TlsError::Config {
            path: self.cert.clone(),
            source,
        })?;
        Ok(Arc::new(pair))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |source| TlsError::Pem {
        path: path.to_owned(),
        source,
    };
    let list = CertificateDer::pem_file_iter(path).map_err(fail)?;
    let list: Vec<_> = list.collect::<Result<_, _>>().map_err(fail)?;
    match list.is_empty() {
        true => Err(TlsError::NoCertificate(path.to_owned())),
        false => Ok(list),
    }
}

/// Names and certificates, in the order given.
type Named = Vec<(Vec<String>, Arc<CertifiedKey>)>;

fn load_named(named: &[NamedFiles]) -> Result<Named, TlsError> {
    let load = |one: &NamedFiles| Ok((one.names.clone(), one.files.load()?));
    named.iter().map(load).collect()
}

fn load_authorities(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::ReadAuthority {
        path: path.to_owned(),
        source,
    })
}

/// TLS at work: the configuration that new connections get.
#[derive(Debug)]
pub(super) struct Live {
    files: Option<KeyPairFiles>,
    named: Vec<NamedFiles>,
    client_ca: Option<(PathBuf, CaBundle)>,
    shown: Arc<Shown>,
    asked: Asked,
    spoken: Spoken,
    current: Mutex<(Vec<u64>, Arc<ServerConfig>)>,
}

/// What does not change while the server runs.
#[derive(Debug)]
struct Spoken {
    http2: bool,
    tls13_only: bool,
    suites: Option<CipherSuites>,
}

/// Who is asked for certificates, and with what consequence.
#[derive(Debug, Clone)]
enum Asked {
    Nobody,
    Politely(Vec<CaBundle>),
    Firmly(CaBundle),
}

impl Live {
    pub fn load(tls: Tls) -> Result<Self, TlsError> {
        let (files, pair) = match tls.certificate {
            Certificate::Files(files) => {
                let pair = files.load()?;
                (Some(files), pair)
            }
            Certificate::SelfSigned(wish) => (None, wish.obtain()?),
            Certificate::Given(pair) => (None, pair),
        };
        let mut client_ca = None;
        let asked = match tls.clients {
            Clients::Ignored => Asked::Nobody,
            Clients::Requested(trusts) => Asked::Politely(trusts),
            Clients::Required(trust) => Asked::Firmly(trust),
            Clients::RequiredByFile(path) => {
                let trust = CaBundle::from_pem(&load_authorities(&path)?);
                let trust = trust.map_err(|source| TlsError::Authority {
                    path: path.clone(),
                    source,
                })?;
                client_ca = Some((path, trust.clone()));
                Asked::Firmly(trust)
            }
        };
        let shown = Arc::new(Shown::new(Set::new(pair, load_named(&tls.named)?)));
        let spoken = Spoken {
            http2: tls.http2,
            tls13_only: tls.tls13_only,
            suites: tls.suites,
        };
        let config = build(&shown, &asked, &spoken).map_err(TlsError::Setup)?;
        Ok(Self {
            current: Mutex::new((asked.generations(), Arc::new(config))),
            files,
            named: tls.named,
            client_ca,
            shown,
            asked,
            spoken,
        })
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        let generations = self.asked.generations();
        let mut current = self.current.lock();
        if current.0 != generations {
            // Clients must hear the new authorities' names, and sessions made under the old ones must end.
            match build(&self.shown, &self.asked, &self.spoken) {
                Ok(config) => *current = (generations, Arc::new(config)),
                Err(error) => tracing::error!(%error, "cannot take new client authorities"),
            }
        }
        Arc::clone(&current.1)
    }

    /// Reads the files again; the old certificate stays if the new one will not do (half of a pair was replaced, say).
    pub fn reload(&self) -> Result<(), TlsError> {
        let default = match &self.files {
            Some(files) => files.load()?,
            None => self.shown.default(),
        };
        self.shown
            .replace(Set::new(default, load_named(&self.named)?));
        if let Some((path, trust)) = &self.client_ca {
            let pem = load_authorities(path)?;
            trust.replace(&pem).map_err(|source| TlsError::Authority {
                path: path.clone(),
                source,
            })?;
        }
        Ok(())
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        let named = self.named.iter().map(|named| &named.files);
        let pairs = self.files.iter().chain(named);
        let pairs = pairs.flat_map(|files| [files.cert.clone(), files.key.clone()]);
        let ca = self.client_ca.iter().map(|(path, _)| path.clone());
        pairs.chain(ca).collect()
    }

    /// What is shown now, leaf first.
    pub fn shown(&self) -> Arc<CertifiedKey> {
        self.shown.default()
    }
}

impl Asked {
    fn trusts(&self) -> &[CaBundle] {
        match self {
            Self::Nobody => &[],
            Self::Politely(trusts) => trusts,
            Self::Firmly(trust) => std::slice::from_ref(trust),
        }
    }

    fn generations(&self) -> Vec<u64> {
        self.trusts().iter().map(CaBundle::generation).collect()
    }
}

fn build(
    shown: &Arc<Shown>,
    asked: &Asked,
    spoken: &Spoken,
) -> Result<ServerConfig, rustls::Error> {
    let mut provider = rustls::crypto::ring::default_provider();
    if let Some(suites) = &spoken.suites {
        suites.restrict(&mut provider);
    }
    let verifier = ClientVerifier {
        algorithms: provider.signature_verification_algorithms,
        hints: asked.trusts().iter().flat_map(CaBundle::hints).collect(),
        required: match asked {
            Asked::Firmly(trust) => Some(trust.clone()),
            Asked::Nobody | Asked::Politely(_) => None,
        },
    };
    let versions = match spoken.tls13_only {
        true => &[&rustls::version::TLS13][..],
        false => rustls::DEFAULT_VERSIONS,
    };
    let builder =
        ServerConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions)?;
    let builder = match asked {
        Asked::Nobody => builder.with_no_client_auth(),
        _ => builder.with_client_cert_verifier(Arc::new(verifier)),
    };
    let mut config = builder.with_cert_resolver(Arc::clone(shown) as _);
    config.alpn_protocols = match spoken.http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    Ok(config)
}

#[derive(Debug)]
struct ClientVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    hints: Vec<DistinguishedName>,
    required: Option<CaBundle>,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required.is_some()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if let Some(trust) = &self.required {
            let chain: Vec<_> = std::iter::once(leaf).chain(rest).cloned().collect();
            trust.verify(&chain)?;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
