//! The user that a client certificate names.

use ring::digest;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::der_parser::oid;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::user::UserInfo;

/// Where the identity of a credential is told among a user's extras.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CertificateError {
    #[error("the client's certificate cannot be read")]
    Malformed,
    #[error("expected 1 UID, but found multiple: {0:?}")]
    ManyUids(Vec<String>),
    #[error("UID cannot be an empty string")]
    EmptyUid,
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => Ok(certificate),
        Err(_) => Err(CertificateError::Malformed),
    }
}

/// The last common name of the subject, as Go has it; empty where there is none.
pub fn common_name(der: &[u8]) -> Result<String, CertificateError> {
    let certificate = parse(der)?;
    let names = certificate.subject().iter_common_name();
    let last = names.filter_map(|name| name.as_str().ok()).last();
    Ok(last.unwrap_or_default().to_owned())
}

/// The organisations that a request for a certificate names, which would be its user's groups; `None`: it cannot be read.
pub fn organizations_of_request(der: &[u8]) -> Option<Vec<String>> {
    let (_, request) = X509CertificationRequest::from_der(der).ok()?;
    let subject = &request.certification_request_info.subject;
    let organizations = subject.iter_organization();
    let texts = organizations.map(|attribute| attribute.as_str().map(str::to_owned).ok());
    texts.collect()
}

/// How long it is still good for.
pub(super) fn seconds_left(der: &[u8]) -> Option<f64> {
    let ends = parse(der).ok()?.validity().not_after.timestamp();
    let now = jiff::Timestamp::now().as_second();
    Some((ends - now) as f64)
}

/// Common name, organisations as groups, and where it has one the UID; `None` without a common name. Whether the
/// certificate is to be believed is another question, to be asked first.
pub fn user_of_certificate(der: &[u8]) -> Result<Option<UserInfo>, CertificateError> {
    let name = common_name(der)?;
    if name.is_empty() {
        return Ok(None);
    }
    let certificate = parse(der)?;
    let subject = certificate.subject();
    let texts = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().map(str::to_owned).ok()
    };
    let uid_oid = oid!(1.3.6.1.4.1.57683.2);
    let uids: Vec<String> = subject.iter_by_oid(&uid_oid).filter_map(texts).collect();
    let uid = match uids.as_slice() {
        [] => String::new(),
        [uid] if uid.is_empty() => return Err(CertificateError::EmptyUid),
        [uid] => uid.clone(),
        _ => return Err(CertificateError::ManyUids(uids)),
    };
    let hash = digest::digest(&digest::SHA256, der);
    let hash: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    Ok(Some(UserInfo {
        name,
        uid,
        groups: subject.iter_organization().filter_map(texts).collect(),
        extra: [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hash}")])].into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn certificate(subject: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn uid() -> DnType {
        DnType::from_oid(&[1, 3, 6, 1, 4, 1, 57683, 2])
    }

    #[test]
    fn name_group_and_uid() {
        let der = certificate(&[
            (DnType::OrganizationName, "system:nodes"),
            (DnType::CommonName, "system:node:a"),
            (uid(), "u-1"),
        ]);
        let user = user_of_certificate(&der).unwrap().unwrap();
        assert_eq!(user.name, "system:node:a");
        assert_eq!(user.groups, ["system:nodes"]);
        assert_eq!(user.uid, "u-1");
        let [(key, ids)] = user.extra.iter().collect::<Vec<_>>()[..] else {
            panic!("{:?}", user.extra)
        };
        assert_eq!(key, "authentication.kubernetes.io/credential-id");
        assert!(ids[0].starts_with("X509SHA256=") && ids[0].len() == 11 + 64);
    }

    #[test]
    fn nobody() {
        let der = certificate(&[(DnType::OrganizationName, "system:masters")]);
        assert_eq!(user_of_certificate(&der), Ok(None));
        let der = certificate(&[(DnType::CommonName, "a"), (uid(), "")]);
        assert_eq!(user_of_certificate(&der), Err(CertificateError::EmptyUid));
        let rubbish = user_of_certificate(b"rubbish");
        assert_eq!(rubbish, Err(CertificateError::Malformed));
    }
}
