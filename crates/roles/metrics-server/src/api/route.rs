//! Which of the server's paths a request goes to.

use http::header::{CONTENT_TYPE, HeaderMap};

use super::past;
use super::row::Kind;
use super::version::{GROUP, Version};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `/`, `/index.html`
    Index,
    /// `/apis`
    Groups,
    /// `/apis/metrics.k8s.io`
    Group,
    /// `/apis/metrics.k8s.io/v1beta1`
    Resources(Version),
    List {
        version: Version,
        kind: Kind,
        /// Empty: all.
        namespace: String,
    },
    Get {
        version: Version,
        kind: Kind,
        namespace: String,
        name: String,
    },
    /// What workloads used, where that is remembered.
    Past(Past),
    /// Within the group, but not there.
    NoResource,
    Version,
    OpenApi2,
    OpenApi3,
    /// What follows `/openapi/v3/`.
    OpenApi3Of(String),
    /// One of the probes, or a path below one.
    Health,
    Metrics,
    Status,
    Debug(Debug),
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    Group,
    Resources,
    /// Of a namespace, or of all.
    List(Option<String>),
    Get {
        namespace: String,
        name: String,
    },
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Debug {
    /// `/debug/pprof`, without its slash.
    ProfilesElsewhere,
    Profiles,
    Profile(String),
    Flags,
    Verbosity,
}

impl Route {
    /// `path` is decoded.
    pub fn of(path: &str) -> Self {
        // Slashes at the end make no difference to resources and discovery, and only there.
        let trimmed = match path.trim_end_matches('/') {
            // This one may have one.
            "/apis" => path.strip_suffix('/').unwrap_or(path),
            trimmed => trimmed,
        };
        let parts: Vec<&str> = trimmed.split('/').skip(1).collect();
        match parts.as_slice() {
            ["apis"] => return Self::Groups,
            ["apis", GROUP] => return Self::Group,
            ["apis", GROUP, version, rest @ ..] => {
                return Version::of(version)
                    .and_then(|version| resource(version, rest))
                    .unwrap_or(Self::NoResource);
            }
            ["apis", past::GROUP, rest @ ..] => return Self::Past(past_of(rest)),
            ["version"] => return Self::Version,
            ["version", ..] => return Self::NoResource,
            _ => {}
        }
        match path {
            "/" | "/index.html" => return Self::Index,
            "/openapi/v2" => return Self::OpenApi2,
            "/openapi/v3" => return Self::OpenApi3,
            "/metrics" => return Self::Metrics,
            "/statusz" => return Self::Status,
            "/debug/pprof" => return Self::Debug(Debug::ProfilesElsewhere),
            "/debug/pprof/" => return Self::Debug(Debug::Profiles),
            "/debug/flags" => return Self::Debug(Debug::Flags),
            "/debug/flags/v" => return Self::Debug(Debug::Verbosity),
            path if path.starts_with("/debug/flags/") => return Self::Debug(Debug::Flags),
            _ => {}
        }
        if let Some(of) = path.strip_prefix("/openapi/v3/") {
            return Self::OpenApi3Of(of.to_owned());
        }
        if let Some(name) = path.strip_prefix("/debug/pprof/") {
            return Self::Debug(Debug::Profile(name.to_owned()));
        }
        match parts.first() {
            Some(&("healthz" | "livez" | "readyz")) => Self::Health,
            _ => Self::Nothing,
        }
    }

    /// Whether what a request says that it carries is acceptable, though it carries nothing that matters. Only discovery
    /// is particular about that.
    pub fn takes(&self, headers: &HeaderMap) -> bool {
        let known: &[&str] = match self {
            Self::Groups | Self::Group | Self::Resources(_) => &[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ],
            Self::Version => &["application/json"],
            _ => return true,
        };
        let Some(said) = headers.get(CONTENT_TYPE) else {
            return true;
        };
        let said = said.to_str().unwrap_or_default();
        let mut types = said
            .split(',')
            .map(|one| one.split(';').next().unwrap_or_default().trim());
        said.is_empty() || types.any(|one| known.contains(&one))
    }

    /// Answers to nothing but GET.
    pub fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Groups
                | Self::Group
                | Self::Resources(_)
                | Self::List { .. }
                | Self::Get { .. }
                | Self::Past(_)
                | Self::Version
        )
    }
}

fn past_of(rest: &[&str]) -> Past {
    match rest {
        [] => Past::Group,
        [past::VERSION] => Past::Resources,
        [past::VERSION, past::RESOURCE] => Past::List(None),
        [past::VERSION, "namespaces", namespace, past::RESOURCE] => {
            Past::List(Some((*namespace).to_owned()))
        }
        [past::VERSION, "namespaces", namespace, past::RESOURCE, name] => Past::Get {
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
        },
        _ => Past::Nothing,
    }
}

fn resource(version: Version, rest: &[&str]) -> Option<Route> {
    let list = |kind, namespace: &str| Route::List {
        version,
        kind,
        namespace: namespace.to_owned(),
    };
    let get = |kind, namespace: &str, name: &str| Route::Get {
        version,
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match rest {
        [] => Some(Route::Resources(version)),
        [resource] => Kind::of(resource).map(|kind| list(kind, "")),
        ["nodes", name] if !name.is_empty() => Some(get(Kind::Node, "", name)),
        ["namespaces", namespace, "pods"] => Some(list(Kind::Pod, namespace)),
        ["namespaces", namespace, "pods", name] if !name.is_empty() => {
            Some(get(Kind::Pod, namespace, name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_requests_go() {
        let base = "/apis/metrics.k8s.io/v1beta1";
        for (path, expected) in [
            ("", "Resources(V1beta1)"),
            ("/", "Resources(V1beta1)"),
            (
                "/nodes",
                "List { version: V1beta1, kind: Node, namespace: \"\" }",
            ),
            (
                "/pods/",
                "List { version: V1beta1, kind: Pod, namespace: \"\" }",
            ),
            (
                "/namespaces/a/pods",
                "List { version: V1beta1, kind: Pod, namespace: \"a\" }",
            ),
            (
                "/namespaces/a/pods/b/",
                "Get { version: V1beta1, kind: Pod, namespace: \"a\", name: \"b\" }",
            ),
            (
                "/nodes///",
                "List { version: V1beta1, kind: Node, namespace: \"\" }",
            ),
            ("/pods/b", "NoResource"),
            ("//nodes", "NoResource"),
            ("/nodes/a/status", "NoResource"),
            ("/namespaces/a/nodes", "NoResource"),
            ("/watch/nodes", "NoResource"),
        ] {
            assert_eq!(
                format!("{:?}", Route::of(&format!("{base}{path}"))),
                expected
            );
        }
        for (path, expected) in [
            ("/", Route::Index),
            ("//", Route::Nothing),
            ("/apis/", Route::Groups),
            ("/apis//", Route::Nothing),
            ("/apis/metrics.k8s.io//", Route::Group),
            ("/apis/metrics.k8s.io/v2/nodes", Route::NoResource),
            ("/apis/other.io/v1", Route::Nothing),
            ("/version/", Route::Version),
            ("/version/x", Route::NoResource),
            ("/openapi/v2/", Route::Nothing),
            ("/openapi/v3/apis", Route::OpenApi3Of("apis".to_owned())),
            ("/livez/ping", Route::Health),
            ("/metrics/", Route::Nothing),
        ] {
            assert_eq!(Route::of(path), expected, "{path}");
        }
    }
}
