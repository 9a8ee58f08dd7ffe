//! Who asks: by client certificate, bearer token, or nobody in particular.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use plimsoll_serving::auth::user_of_certificate;

use super::User;
use super::tokens::{TokenError, Tokens};
use crate::kinds::Lookup;
use crate::status::StatusError;

/// `certificate` is the peer's own, in DER, and only if it was found to be signed by the client CA.
pub(super) fn authenticate(
    tokens: &Tokens,
    headers: &HeaderMap,
    certificate: Option<&[u8]>,
    now: Timestamp,
    world: &dyn Lookup,
) -> Result<User, StatusError> {
    let by_certificate = certificate.map(user_of_certificate);
    if let Some(Ok(Some(user))) = by_certificate {
        return Ok(user.authenticated());
    }
    let by_token = match bearer_token(headers) {
        Bearer::Token(token) => Some(tokens.authenticate(token, &[], now, world)),
        Bearer::None | Bearer::AfterSpaces => None,
    };
    match by_token {
        Some(Ok((user, _))) => Ok(user.authenticated()),
        Some(Err(problem)) => {
            tracing::debug!(%problem, "token refused");
            Err(StatusError::unauthorized())
        }
        // A credential that is no good does not make its bearer anonymous.
        None if matches!(by_certificate, Some(Err(_))) => Err(StatusError::unauthorized()),
        None => Ok(User::anonymous()),
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
            Ok((user.authenticated(), audiences))
        }
        Bearer::None | Bearer::AfterSpaces => {
            let audiences = match audiences {
                [] => &tokens.audiences,
                asked => asked,
            };
            Ok((User::anonymous(), audiences.to_vec()))
        }
    }
}

/// For the `Warning` header of a request whose token was not looked at.
pub fn ignored_token_warning(headers: &HeaderMap) -> Option<&'static str> {
    matches!(bearer_token(headers), Bearer::AfterSpaces).then_some(
        "the provided Authorization header contains extra space before the bearer token, and is ignored",
    )
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
