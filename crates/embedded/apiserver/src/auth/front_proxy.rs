//! Telling aggregated API servers who asks, in headers that they believe from us; and nobody else may send them.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_golang::url;

use super::User;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA_PREFIX: &str = "x-remote-extra-";

/// Removes what a client may not say about itself. For every request, once its user is known.
pub fn strip(headers: &mut HeaderMap) {
    for name in [USER, UID, GROUP] {
        headers.remove(name);
    }
    let extra = headers.keys().filter(|name| is_extra(name)).cloned();
    for name in extra.collect::<Vec<_>>() {
        headers.remove(name);
    }
}

/// Puts `user` in the place of whatever the request said.
pub fn identify(headers: &mut HeaderMap, user: &User) {
    strip(headers);
    headers.insert(USER, value(&user.name));
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid));
    }
    for group in &user.groups {
        headers.append(GROUP, value(group));
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA_PREFIX}{}", escaped(key));
        let Ok(name) = HeaderName::try_from(name) else {
            continue;
        };
        for one in values {
            headers.append(name.clone(), value(one));
        }
    }
}

fn is_extra(name: &HeaderName) -> bool {
    name.as_str().starts_with(EXTRA_PREFIX)
}

/// Control characters cannot be sent; a name with them matches nobody.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_bytes(text.as_bytes()).unwrap_or(HeaderValue::from_static("?"))
}

/// Keys may hold what header names cannot.
fn escaped(key: &str) -> String {
    url::escape(key, |byte| {
        byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_headers_are_replaced() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("X-Remote-User", "root"),
            ("X-Remote-Uid", "0"),
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Extra-Scopes", "all"),
            ("Accept", "*/*"),
        ] {
            let name = HeaderName::try_from(name).unwrap();
            headers.append(name, HeaderValue::from_static(value));
        }
        let user = User {
            name: "alice".to_owned(),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: [("example.org/x%".to_owned(), vec!["1".to_owned()])].into(),
            ..User::default()
        };
        identify(&mut headers, &user);
        let mut shown: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        shown.sort();
        let expected = [
            "accept: */*",
            "x-remote-extra-example.org%2fx%25: 1",
            "x-remote-group: a",
            "x-remote-group: b",
            "x-remote-user: alice",
        ];
        assert_eq!(shown, expected);
    }
}
