//! RequestInfo: verb, resource and name of a request, from its method, path and query.

use http::Method;

use super::selector::{Selector, parse_fields};
use plimsoll_golang::url;

/// A request, as authorization and routing see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for paths that are no
    /// resource the method in lower case.
    pub verb: &'static str,
    pub path: String,
    /// `None` for `/healthz`, `/version`, `/apis` and the like.
    pub resource: Option<ResourcePath>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    /// Empty: cluster-scoped, or over all namespaces.
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows a subresource: the path that `proxy` hands on.
    pub rest: Vec<String>,
}

impl ResourcePath {
    /// `pods`, `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

impl RequestInfo {
    /// `path` is as it was sent. It is decoded before it is taken apart: whoever answers the request does so, too, and
    /// what is allowed must be what is answered.
    pub fn new(method: &Method, path: &str, query: &Query) -> Self {
        let path = decoded(path);
        let mut info = Self {
            verb: lower(method),
            path: path.clone(),
            resource: None,
        };
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return info,
        };
        if rest.is_empty() {
            return info;
        }
        let mut found = ResourcePath {
            group: group.to_owned(),
            version: version.to_owned(),
            ..ResourcePath::default()
        };
        // The old ways of asking for a watch, and to be let through: whatever the method is, that is what is asked.
        let said = match rest[0] {
            "watch" => Some("watch"),
            "proxy" => Some("proxy"),
            _ => None,
        };
        let said = said.filter(|_| rest.len() > 1);
        if said.is_some() {
            rest = &rest[1..];
        }
        // A namespace is a resource itself, and the scope of others.
        if rest[0] == "namespaces" && rest.len() >= 2 {
            found.namespace = rest[1].to_owned();
            let of_the_namespace = matches!(rest.get(2), None | Some(&"status" | &"finalize"));
            if !of_the_namespace {
                rest = &rest[2..];
            }
        }
        found.resource = rest[0].to_owned();
        let part = |index: usize| rest.get(index).map(|part| (*part).to_owned());
        found.name = part(1).unwrap_or_default();
        found.subresource = part(2).unwrap_or_default();
        found.rest = rest.iter().skip(3).map(|part| (*part).to_owned()).collect();
        if found.resource == "namespaces" && group.is_empty() {
            found.namespace.clone_from(&found.name);
        }
        let by_method = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if found.name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            ref other if other != Method::GET && other != Method::HEAD => "",
            // A named object is not watched this way: the parameter is ignored.
            _ if !found.name.is_empty() => "get",
            _ if query.flag("watch") => "watch",
            _ => "list",
        };
        info.verb = said.unwrap_or(by_method);
        info.resource = Some(found);
        info
    }
}

impl RequestInfo {
    /// A list of one name is asked about by that name.
    pub fn narrow(&mut self, query: &Query) {
        let Some(path) = &mut self.resource else {
            return;
        };
        if !path.name.is_empty() || !matches!(self.verb, "list" | "watch" | "deletecollection") {
            return;
        }
        let selector = Selector {
            labels: Vec::new(),
            fields: parse_fields(query.get("fieldSelector").unwrap_or_default())
                .unwrap_or_default(),
        };
        // What cannot stand in a path is no name.
        let usable = |name: &&str| !matches!(*name, "." | "..") && !name.contains(['/', '%']);
        if let Some(name) = selector.single_name().filter(usable) {
            name.clone_into(&mut path.name);
        }
    }
}

fn lower(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::HEAD => "head",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

/// The parameters of a URL, decoded, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Pairs that are malformed are passed over, as Go does: with an escape that is none, or a semicolon.
    pub fn parse(query: &str) -> Self {
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Self(
            pairs
                .filter_map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((url::unescape(key, true)?, url::unescape(value, true)?))
                })
                .collect(),
        )
    }

    /// The first value of a parameter that is there and not empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// A switch: `1`, `true`, or the bare name; `0` and `false` are off.
    pub fn flag(&self, key: &str) -> bool {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .is_some_and(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
    }
}

/// What is malformed stays as it is.
fn decoded(part: &str) -> String {
    url::unescape(part, false).unwrap_or_else(|| part.to_owned())
}

/// Whether every escape in it is one.
pub fn is_percent_encoded(path: &str) -> bool {
    url::unescape(path, false).is_some()
}

/// A path as it was meant.
pub fn percent_decoded(path: &str) -> String {
    decoded(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, target: &str, expected: &str) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let info = RequestInfo::new(&method, path, &Query::parse(query));
        let shown = match &info.resource {
            None => format!("{} -", info.verb),
            Some(r) => format!(
                "{} {}/{} ns={} {} name={} sub={} rest={}",
                info.verb,
                r.group,
                r.version,
                r.namespace,
                r.resource,
                r.name,
                r.subresource,
                r.rest.join("/")
            ),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn parameters() {
        let query = Query::parse("a=%zz&b=1&c;d=2&e=x%20y+z&=3&f&%zz=4&b=5");
        assert_eq!(query.get("a"), None);
        assert_eq!(query.get("b"), Some("1"));
        assert_eq!(query.all("b").collect::<Vec<_>>(), ["1", "5"]);
        assert_eq!(query.get("e"), Some("x y z"));
        assert!(query.flag("f"));
        assert_eq!(query.0.len(), 5);
    }

    #[test]
    fn what_is_asked() {
        check(
            Method::GET,
            "/api/v1/pods",
            "list /v1 ns= pods name= sub= rest=",
        );
        check(
            Method::GET,
            "/api/v1/pods?watch",
            "watch /v1 ns= pods name= sub= rest=",
        );
        check(
            Method::GET,
            "/api/v1/pods?watch=false",
            "list /v1 ns= pods name= sub= rest=",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods/p%20q?watch=1",
            "get /v1 ns=a pods name=p q sub= rest=",
        );
        check(
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection apps/v1 ns=a deployments name= sub= rest=",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a",
            "get /v1 ns=a namespaces name=a sub= rest=",
        );
        check(
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update /v1 ns=a namespaces name=a sub=finalize rest=",
        );
        check(
            Method::GET,
            "/api/v1/watch/namespaces/a/pods",
            "watch /v1 ns=a pods name= sub= rest=",
        );
        check(
            Method::POST,
            "/api/v1/proxy/nodes/x/y",
            "proxy /v1 ns= nodes name=x sub=y rest=",
        );
        check(
            Method::POST,
            "/api/v1/namespaces/a/services/s/proxy/x/y",
            "create /v1 ns=a services name=s sub=proxy rest=x/y",
        );
        // Slashes that are written otherwise are slashes.
        check(
            Method::GET,
            "/apis/apps%2Fv1%2Fdeployments",
            "list apps/v1 ns= deployments name= sub= rest=",
        );
        check(
            Method::GET,
            "/api/v1/nodes/a%2Fproxy",
            "get /v1 ns= nodes name=a sub=proxy rest=",
        );
        check(
            Method::GET,
            "/%61pi/v1/namespaces//pods/",
            "list /v1 ns= pods name= sub= rest=",
        );
        check(
            Method::GET,
            "/api/v1//pods",
            "get /v1 ns=  name=pods sub= rest=",
        );
        check(Method::GET, "/apis/apps/v1", "get -");
        check(Method::POST, "/healthz", "post -");
    }
}
