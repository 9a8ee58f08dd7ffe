//! Certificate authorities that client certificates are verified with. The set can change while connections are open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};

/// How long a verdict on a connection's certificate is believed: certificates also expire.
const VERDICT_LASTS: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("no certificate found in what should be PEM certificates of authorities")]
    Empty,
    #[error("not PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    #[error("not a certificate of an authority")]
    Certificate(#[source] rustls::Error),
    #[error("authorities cannot be used")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// Authorities that sign client certificates. Clones are the same set. An empty set trusts nobody.
#[derive(Debug, Clone)]
pub struct CaBundle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    current: ArcSwap<Anchors>,
}

#[derive(Debug)]
struct Anchors {
    /// Different for each content of each set in this process, so that a verdict can be told to be of another set.
    generation: u64,
    pem: Vec<u8>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Default for CaBundle {
    fn default() -> Self {
        Self::nobody()
    }
}

impl CaBundle {
    pub fn nobody() -> Self {
        Self::of(Anchors {
            generation: next_generation(),
            pem: Vec::new(),
            verifier: None,
        })
    }

    pub fn from_pem(pem: &[u8]) -> Result<Self, TrustError> {
        Ok(Self::of(Anchors::parse(pem)?))
    }

    fn of(anchors: Anchors) -> Self {
        Self(Arc::new(Shared {
            current: ArcSwap::from_pointee(anchors),
        }))
    }

    /// Takes another set from now on, for connections that are open too. True where it differs from the one before.
    pub fn replace(&self, pem: &[u8]) -> Result<bool, TrustError> {
        if self.0.current.load().pem == pem {
            return Ok(false);
        }
        self.0.current.store(Arc::new(Anchors::parse(pem)?));
        Ok(true)
    }

    /// Trusts nobody from now on.
    pub fn clear(&self) {
        self.0.current.store(Arc::new(Anchors {
            generation: next_generation(),
            pem: Vec::new(),
            verifier: None,
        }));
    }

    pub fn is_empty(&self) -> bool {
        self.0.current.load().verifier.is_none()
    }

    /// Changes with every change of the set.
    pub fn generation(&self) -> u64 {
        self.0.current.load().generation
    }

    /// Was this chain, leaf first, issued by one of them, for clients, and is it within its time?
    pub fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        verify(&self.0.current.load(), chain)
    }

    /// The names that clients choose their certificate by.
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        let current = self.0.current.load();
        let hints = current.verifier.as_ref().map(|v| v.root_hint_subjects());
        hints.unwrap_or_default().to_vec()
    }
}

fn verify(anchors: &Anchors, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
    let Some((leaf, rest)) = chain.split_first() else {
        return Err(rustls::Error::NoCertificatesPresented);
    };
    let Some(verifier) = &anchors.verifier else {
        return Err(rustls::CertificateError::UnknownIssuer.into());
    };
    verifier.verify_client_cert(leaf, rest, UnixTime::now())?;
    Ok(())
}

fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Anchors {
    fn parse(pem: &[u8]) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(TrustError::Pem)?;
            roots.add(certificate).map_err(TrustError::Certificate)?;
        }
        if roots.is_empty() {
            return Err(TrustError::Empty);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(TrustError::Verifier)?;
        Ok(Self {
            generation: next_generation(),
            pem: pem.to_vec(),
            verifier: Some(verifier),
        })
    }
}

/// Who is at the other end of the connection a request came by; an extension of the request.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// What the client showed, leaf first, and proved to hold the key of. Nothing else is known about it until
    /// [`Self::verified_by`] is asked.
    pub certificates: Arc<[CertificateDer<'static>]>,
    verdicts: Arc<Mutex<Vec<Verdict>>>,
}

#[derive(Debug)]
struct Verdict {
    generation: u64,
    at: Instant,
    outcome: Result<(), rustls::Error>,
}

impl Peer {
    pub fn new(address: SocketAddr, certificates: &[CertificateDer<'static>]) -> Self {
        Self {
            address,
            certificates: certificates.into(),
            verdicts: Arc::default(),
        }
    }

    /// As [`CaBundle::verify`], remembered for a few seconds: a connection carries many requests.
    pub fn verified_by(&self, trust: &CaBundle) -> Result<(), rustls::Error> {
        let anchors = trust.0.current.load();
        let mut verdicts = self.verdicts.lock();
        verdicts.retain(|verdict| verdict.at.elapsed() < VERDICT_LASTS);
        let known = verdicts.iter().find(|v| v.generation == anchors.generation);
        if let Some(known) = known {
            return known.outcome.clone();
        }
        let outcome = verify(&anchors, &self.certificates);
        verdicts.push(Verdict {
            generation: anchors.generation,
            at: Instant::now(),
            outcome: outcome.clone(),
        });
        outcome
    }
}
