//! Certificates for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::{CaBundle, Certificate, Peer, certified_key};

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Certificate and key as PEM.
#[derive(Debug, Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Clients choose a certificate by its authority's name.
        let name = format!("authority-{}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn trust(&self) -> CaBundle {
        CaBundle::from_pem(self.pem().as_bytes()).unwrap()
    }

    /// For `localhost` and `127.0.0.1`.
    pub fn server(&self) -> Pair {
        self.issue("server", "o", ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, name: &str, organisation: &str) -> Pair {
        self.issue(name, organisation, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, name: &str, organisation: &str, usage: ExtendedKeyUsagePurpose) -> Pair {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, name);
        subject.push(DnType::OrganizationName, organisation);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap().pem();
        Pair {
            cert,
            key: key.serialize_pem(),
        }
    }

    /// Somebody who has shown such a certificate.
    pub fn peer(&self, name: &str, organisation: &str) -> Peer {
        let leaf = self.client(name, organisation).cert;
        let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap();
        Peer::new("10.0.0.1:1".parse().unwrap(), &[leaf])
    }
}

impl Pair {
    pub fn given(&self) -> Certificate {
        let key = certified_key(self.cert.as_bytes(), self.key.as_bytes());
        Certificate::Given(key.unwrap())
    }
}
