//! Path (cleaned and decoded) and query of a request, by the rules of Go's server.

use std::borrow::Cow;

use plimsoll_golang::url;

/// A path without `.`, `..` and doubled slashes; a slash at the end stays. Works on the path as it was sent: an escaped
/// dot is a name, not a way up.
pub fn clean(path: &str) -> Cow<'_, str> {
    let is_clean = path.starts_with('/')
        && !path.contains("//")
        && !path.split('/').any(|part| part == "." || part == "..");
    if is_clean {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    let mut cleaned = format!("/{}", kept.join("/"));
    if path.ends_with('/') && cleaned != "/" {
        cleaned.push('/');
    }
    Cow::Owned(cleaned)
}

/// Undoes percent escapes; `None` where one is broken. What is not UTF-8 afterwards comes out marked: no container is
/// named so.
pub fn decode(text: &str) -> Option<String> {
    url::unescape(text, false)
}

/// The options of a request. A repeated option counts once: the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// A pair that cannot be decoded, or that holds a semicolon, is as if it were not there.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| {
            if pair.is_empty() || pair.contains(';') {
                return None;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = |part: &str| url::unescape(part, true);
            Some((text(key)?, text(value)?))
        });
        Self(pairs.collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    /// A value, where an empty one counts as none.
    pub fn filled(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// `None` where it is absent or not a yes or no.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cleaning() {
        for (path, expected) in [
            ("/", "/"),
            ("", "/"),
            ("//", "/"),
            ("/..", "/"),
            ("/api//", "/api/"),
            ("//api/v1.3/machine", "/api/v1.3/machine"),
            ("/api/v1.3/../v1.3/machine", "/api/v1.3/machine"),
            ("/a/./b/", "/a/b/"),
            ("/%2e%2e/api", "/%2e%2e/api"),
            ("/a..b/...", "/a..b/..."),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
    }

    #[test]
    fn decoding() {
        assert_eq!(decode("/%6bube/a%20b%22c+d").unwrap(), "/kube/a b\"c+d");
        assert_eq!(decode("/%C3%A9").unwrap(), "/é");
        assert_eq!(decode("/%ff").unwrap(), "/\u{fffd}");
        assert_eq!(
            (decode("/%zz"), decode("/%"), decode("/%a")),
            (None, None, None)
        );
    }

    #[test]
    fn options() {
        let query = Query::parse("count=+1&count=2&a;b=1&x=%zz&flag=T&empty=&bare");
        assert_eq!(query.get("count"), Some(" 1"));
        assert_eq!((query.get("x"), query.get("a;b")), (None, None));
        assert_eq!(
            (query.flag("flag"), query.flag("count")),
            (Some(true), None)
        );
        assert_eq!(
            (query.get("empty"), query.filled("empty")),
            (Some(""), None)
        );
        assert_eq!(query.get("bare"), Some(""));
    }

    proptest! {
        #[test]
        fn anything_cleans_to_something_clean(path: String) {
            let cleaned = clean(&path).into_owned();
            prop_assert!(cleaned.starts_with('/'));
            prop_assert_eq!(clean(&cleaned).into_owned(), cleaned.clone());
            prop_assert!(!cleaned.contains("//"));
        }

        #[test]
        fn nothing_panics(text: String) {
            let _ = decode(&text);
            let query = Query::parse(&text);
            query.get(&text);
        }

        #[test]
        fn escapes_read_back(text: String) {
            let escaped: String = text.bytes().map(|b| format!("%{b:02X}")).collect();
            prop_assert_eq!(decode(&escaped), Some(text));
        }
    }
}
