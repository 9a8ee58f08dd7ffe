//! The user that the front proxy sends in request headers.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::HeaderName;

use super::user::UserInfo;
use crate::CaBundle;
use plimsoll_golang::url::unescape;

/// The headers everybody uses; they are taken away even where others are agreed on.
const USUAL: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const USUAL_EXTRA: &str = "x-remote-extra-";

/// Which headers tell what, and by whom they may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    /// Common names of the proxy's certificate; empty allows any.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl Default for RequestHeaderConfig {
    fn default() -> Self {
        Self {
            allowed_names: Vec::new(),
            username_headers: vec![USUAL[0].to_owned()],
            uid_headers: Vec::new(),
            group_headers: vec![USUAL[2].to_owned()],
            extra_prefixes: vec![USUAL_EXTRA.to_owned()],
        }
    }
}

impl RequestHeaderConfig {
    pub fn allows(&self, common_name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|n| n == common_name)
    }

    /// What the headers say; `None` where they name nobody. To be asked only about requests of a proxy that has proved
    /// to be one.
    pub fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let first = |names: &[String]| {
            let values = names.iter().filter_map(|name| headers.get(name.as_str()));
            let mut values = values.map(text).filter(|value| !value.is_empty());
            values.next()
        };
        let name = first(&self.username_headers)?;
        let groups = self.group_headers.iter();
        let groups = groups.flat_map(|name| headers.get_all(name.as_str()));
        let groups = groups.map(text).filter(|group| !group.is_empty());
        let mut user = UserInfo {
            name,
            uid: first(&self.uid_headers).unwrap_or_default(),
            groups: groups.collect(),
            ..UserInfo::default()
        };
        for prefix in &self.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = strip_prefix(name, prefix) {
                    let values = user.extra.entry(unescaped(key)).or_default();
                    values.push(text(value));
                }
            }
        }
        Some(user)
    }

    /// Takes away everything that could be mistaken for a word of the proxy.
    pub fn strip(&self, headers: &mut HeaderMap) {
        let told = [
            &self.username_headers,
            &self.uid_headers,
            &self.group_headers,
        ];
        let told = told.into_iter().flatten().map(String::as_str);
        for name in told.chain(USUAL) {
            headers.remove(name);
        }
        let prefixes = || {
            let agreed = self.extra_prefixes.iter().map(String::as_str);
            agreed.chain([USUAL_EXTRA])
        };
        let extra: Vec<HeaderName> = headers
            .keys()
            .filter(|name| prefixes().any(|prefix| strip_prefix(name, prefix).is_some()))
            .cloned()
            .collect();
        for name in extra {
            headers.remove(name);
        }
    }
}

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn strip_prefix<'a>(name: &'a HeaderName, prefix: &str) -> Option<&'a str> {
    let (begin, rest) = name.as_str().split_at_checked(prefix.len())?;
    begin.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Keys may hold what header names cannot; what is not well escaped is taken as it is.
fn unescaped(key: &str) -> String {
    unescape(key, false).unwrap_or_else(|| key.to_owned())
}

/// The front proxy as it is known at the moment. Clones are the same.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// Whose certificates a proxy shows; nobody's: there is no front proxy.
    pub trust: CaBundle,
    rules: Arc<ArcSwap<RequestHeaderConfig>>,
}

impl FrontProxy {
    pub fn new(trust: CaBundle, rules: RequestHeaderConfig) -> Self {
        Self {
            trust,
            rules: Arc::new(ArcSwap::from_pointee(rules)),
        }
    }

    pub fn none() -> Self {
        Self::new(CaBundle::nobody(), RequestHeaderConfig::default())
    }

    pub fn rules(&self) -> Arc<RequestHeaderConfig> {
        self.rules.load_full()
    }

    pub fn set_rules(&self, rules: RequestHeaderConfig) {
        self.rules.store(Arc::new(rules));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_whole_user() {
        let rules = RequestHeaderConfig {
            uid_headers: vec!["X-Remote-Uid".to_owned()],
            username_headers: vec!["X-Other-User".to_owned(), "X-Remote-User".to_owned()],
            ..RequestHeaderConfig::default()
        };
        let headers = headers(&[
            ("X-Other-User", ""),
            ("X-Remote-User", "jane"),
            ("X-Remote-User", "second"),
            ("X-Remote-Uid", "42"),
            ("X-Remote-Group", "devs"),
            ("X-Remote-Group", ""),
            ("X-Remote-Group", "ops"),
            ("X-Remote-Extra-Acme.com%2Fproject", "one"),
            ("X-Remote-Extra-Acme.com%2Fproject", "two"),
            ("X-Remote-Extra-Bad%2", "x"),
            ("X-Remote-Extra-Worse%+1", "y"),
        ]);
        let user = rules.user(&headers).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
        assert_eq!(user.groups, ["devs", "ops"]);
        let extra: Vec<_> = user.extra.into_iter().collect();
        let expect = [
            ("acme.com/project", vec!["one", "two"]),
            ("bad%2", vec!["x"]),
            ("worse%+1", vec!["y"]),
        ];
        let expect =
            expect.map(|(k, v)| (k.to_owned(), v.into_iter().map(str::to_owned).collect()));
        assert_eq!(extra, expect);
    }

    #[test]
    fn nobody_without_a_name() {
        let rules = RequestHeaderConfig::default();
        let headers = headers(&[("X-Remote-Group", "system:masters"), ("X-Remote-User", "")]);
        assert_eq!(rules.user(&headers), None);
    }

    #[test]
    fn nothing_is_left_of_it() {
        let rules = RequestHeaderConfig {
            username_headers: vec!["X-Our-User".to_owned()],
            extra_prefixes: vec!["X-Our-Extra-".to_owned()],
            ..RequestHeaderConfig::default()
        };
        let mut headers = headers(&[
            ("X-Our-User", "a"),
            ("X-Our-Extra-Scopes", "b"),
            ("X-Remote-User", "c"),
            ("X-Remote-Uid", "d"),
            ("X-Remote-Group", "e"),
            ("X-Remote-Extra-F", "f"),
            ("Accept", "*/*"),
        ]);
        rules.strip(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["accept"]);
    }
}
