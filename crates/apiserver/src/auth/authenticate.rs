//! Who asks: by client certificate, bearer token, or nobody in particular.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use ring::digest;
use x509_parser::der_parser::oid;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::service_account::EXTRA_CREDENTIAL_ID;
use super::tokens::{TokenError, Tokens};
use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::kinds::Lookup;
use crate::status::Failure;

/// `certificate` is the peer's own, in DER, and only if it was found to be signed by the client CA.
pub(super) fn authenticate(
    tokens: &Tokens,
    headers: &HeaderMap,
    certificate: Option<&[u8]>,
    now: Timestamp,
    world: &dyn Lookup,
) -> Result<User, Failure> {
    let by_certificate = certificate.map(user_of_certificate);
    if let Some(Ok(Some(user))) = by_certificate {
        return Ok(authenticated(user));
    }
    let by_token = match bearer_token(headers) {
        Bearer::Token(token) => Some(tokens.authenticate(token, &[], now, world)),
        Bearer::None | Bearer::AfterSpaces => None,
    };
    match by_token {
        Some(Ok((user, _))) => Ok(authenticated(user)),
        Some(Err(problem)) => {
            tracing::debug!(%problem, "token refused");
            Err(Failure::unauthorized())
        }
        // A credential that is no good does not make its bearer anonymous.
        None if matches!(by_certificate, Some(Err(_))) => Err(Failure::unauthorized()),
        None => Ok(anonymous()),
    }
}

/// As for a request with nothing but this token, for which no certificate can speak.
pub(super) fn authenticate_token(
    tokens: &Tokens,
    header: &str,
    audiences: &[String],
    now: Timestamp,
    world: &dyn Lookup,
) -> Result<(User, Vec<String>), TokenError> {
    match bearer_of(header) {
        Bearer::Token(token) => {
            let (user, audiences) = tokens.authenticate(token, audiences, now, world)?;
            Ok((authenticated(user), audiences))
        }
        Bearer::None | Bearer::AfterSpaces => {
            let audiences = match audiences {
                [] => &tokens.audiences,
                asked => asked,
            };
            Ok((anonymous(), audiences.to_vec()))
        }
    }
}

/// For the `Warning` header of a request whose token was not looked at.
pub fn ignored_token_warning(headers: &HeaderMap) -> Option<&'static str> {
    matches!(bearer_token(headers), Bearer::AfterSpaces).then_some(
        "the provided Authorization header contains extra space before the bearer token, and is ignored",
    )
}

fn anonymous() -> User {
    User {
        name: ANONYMOUS.to_owned(),
        groups: vec![UNAUTHENTICATED.to_owned()],
        ..User::default()
    }
}

fn authenticated(mut user: User) -> User {
    let said = user.in_group(AUTHENTICATED) || user.in_group(UNAUTHENTICATED);
    if user.name != ANONYMOUS && !said {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

#[derive(Debug, PartialEq, Eq)]
enum Bearer<'a> {
    None,
    /// There is one, but not where it belongs.
    AfterSpaces,
    Token(&'a str),
}

fn bearer_token(headers: &HeaderMap) -> Bearer<'_> {
    let header = headers.get(AUTHORIZATION);
    let text = header.and_then(|header| std::str::from_utf8(header.as_bytes()).ok());
    match (header, text) {
        (_, Some(text)) => bearer_of(text),
        // No token has bytes like these.
        (Some(_), None) => Bearer::Token("\u{fffd}"),
        (None, _) => Bearer::None,
    }
}

fn bearer_of(header: &str) -> Bearer<'_> {
    let mut parts = header.trim().splitn(3, ' ');
    let (scheme, token) = (parts.next().unwrap_or_default(), parts.next());
    match token {
        Some(token) if scheme.eq_ignore_ascii_case("bearer") => match token {
            "" => Bearer::AfterSpaces,
            token => Bearer::Token(token),
        },
        _ => Bearer::None,
    }
}

#[derive(Debug, PartialEq, Eq)]
struct BadCertificate;

/// Common name, organisations as groups, and where it has one the UID; `None` without a common name.
fn user_of_certificate(der: &[u8]) -> Result<Option<User>, BadCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| BadCertificate)?;
    let subject = certificate.subject();
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().map(str::to_owned).ok()
    };
    let name = subject.iter_common_name().filter_map(text).last();
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let uid_oid = oid!(1.3.6.1.4.1.57683.2);
    let uids: Vec<String> = subject.iter_by_oid(&uid_oid).filter_map(text).collect();
    let uid = match uids.as_slice() {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        _ => return Err(BadCertificate),
    };
    let hash = digest::digest(&digest::SHA256, der);
    let hash: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    Ok(Some(User {
        name,
        uid,
        groups: subject.iter_organization().filter_map(text).collect(),
        extra: [(
            EXTRA_CREDENTIAL_ID.to_owned(),
            vec![format!("X509SHA256={hash}")],
        )]
        .into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer() {
        assert_eq!(bearer_of("Bearer abc"), Bearer::Token("abc"));
        assert_eq!(bearer_of(" bearer abc "), Bearer::Token("abc"));
        assert_eq!(bearer_of("BEARER a b c"), Bearer::Token("a"));
        assert_eq!(bearer_of("Bearer  abc"), Bearer::AfterSpaces);
        for none in ["", "Bearer", "Bearer ", "Basic abc", "abc"] {
            assert_eq!(bearer_of(none), Bearer::None, "{none}");
        }
    }
}
