//! Chooses the certificate by the server name that the client asks for (SNI).

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The certificates of the moment.
#[derive(Debug)]
pub(super) struct Shown(ArcSwap<Set>);

#[derive(Debug)]
pub(super) struct Set {
    /// For whoever says no name, or one that is not known.
    pub default: Arc<CertifiedKey>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Set {
    /// Where two are for one name, the first counts. Names may begin with `*.`; without any, a certificate's own count.
    pub fn new(default: Arc<CertifiedKey>, named: Vec<(Vec<String>, Arc<CertifiedKey>)>) -> Self {
        let mut by_name = HashMap::new();
        for (names, pair) in named {
            let names = match names.is_empty() {
                true => pair.cert.first().map(own_names).unwrap_or_default(),
                false => names,
            };
            for name in names {
                let name = name.to_ascii_lowercase();
                by_name.entry(name).or_insert_with(|| Arc::clone(&pair));
            }
        }
        Self { default, by_name }
    }

    fn for_name(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let named = name.and_then(|name| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            self.by_name.get(&name).or_else(|| {
                let (_, domain) = name.split_once('.')?;
                self.by_name.get(&format!("*.{domain}"))
            })
        });
        named.unwrap_or(&self.default)
    }
}

/// Alternative names, or, in a certificate from before there were some, the common name.
fn own_names(leaf: &CertificateDer<'static>) -> Vec<String> {
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else {
        return Vec::new();
    };
    let alternative = leaf.subject_alternative_name().ok().flatten();
    let alternative = alternative.map(|extension| &extension.value.general_names);
    let names: Vec<String> = alternative
        .into_iter()
        .flatten()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    if !names.is_empty() {
        return names;
    }
    let common = leaf.subject().iter_common_name();
    common
        .filter_map(|name| name.as_str().ok().map(str::to_owned))
        .collect()
}

impl Shown {
    pub fn new(set: Set) -> Self {
        Self(ArcSwap::from_pointee(set))
    }

    pub fn replace(&self, set: Set) {
        self.0.store(Arc::new(set));
    }

    pub fn default(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.load().default)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.0.load().for_name(hello.server_name())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::certified_key;
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn pair(names: &[&str]) -> Arc<CertifiedKey> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(names).unwrap();
        let cert = cert.self_signed(&key).unwrap();
        certified_key(cert.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    #[test]
    fn by_name() {
        let (default, exact, wild) = (pair(&["d"]), pair(&["a.example"]), pair(&["own.example"]));
        let told = vec!["*.example".to_owned(), "A.example".to_owned()];
        let set = Set::new(
            Arc::clone(&default),
            vec![(Vec::new(), Arc::clone(&exact)), (told, Arc::clone(&wild))],
        );
        for (name, expect) in [
            (None, &default),
            (Some("a.example"), &exact),
            (Some("A.EXAMPLE."), &exact),
            (Some("b.example"), &wild),
            (Some("own.example"), &wild),
            (Some("c.b.example"), &default),
            (Some("example"), &default),
        ] {
            assert!(Arc::ptr_eq(set.for_name(name), expect), "{name:?}");
        }
    }
}
