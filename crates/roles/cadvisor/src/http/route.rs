//! Maps a path to a route. Pure.

use plimsoll_containers::Namespace;

use super::extra::{ExtraPage, ExtraRoute};
use super::url::{clean, decode};

/// The URL prefix, the path of `/metrics`, and the extra routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounts {
    /// Empty, or `/prefix` without a slash at the end.
    prefix: String,
    prometheus: String,
    extra: Vec<(&'static str, ExtraKind)>,
}

/// What kind of page an extra route is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraKind {
    Metrics,
    Debug,
    Moved(&'static str),
}

impl Mounts {
    pub fn new(prefix: &str, prometheus: &str) -> Self {
        let trimmed = prefix.trim_matches('/');
        Self {
            prefix: match trimmed {
                "" => String::new(),
                trimmed => format!("/{trimmed}"),
            },
            prometheus: format!("/{}", prometheus.trim_start_matches('/')),
            extra: Vec::new(),
        }
    }

    pub fn with_extra(mut self, routes: &[ExtraRoute]) -> Self {
        let kind = |page: &ExtraPage| match page {
            ExtraPage::Metrics(_) | ExtraPage::Text(_) => ExtraKind::Metrics,
            ExtraPage::Json(_) => ExtraKind::Debug,
            ExtraPage::Moved(to) => ExtraKind::Moved(to),
        };
        let routes = routes.iter().map(|route| (route.path, kind(&route.page)));
        self.extra = routes.collect();
        self
    }
}

impl Default for Mounts {
    fn default() -> Self {
        Self::new("", "/metrics")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Healthz,
    Readyz,
    Metrics,
    MetricsCadvisor,
    MetricsResource,
    MetricsSelf,
    StatsSummary,
    /// Below `/stats` the kubelet has nothing else.
    StatsNotFound,
    Sources,
    Plan,
    /// An extra route, by its index.
    Extra(usize, ExtraKind),
    Validate,
    /// The decoded path from `/api/` on.
    Api(String),
    /// The decoded path below `/containers`, with its slash.
    ContainersPage(String),
    RuntimePage(Namespace, String),
    Static(String),
    Redirect {
        to: String,
        permanent: bool,
    },
    NotFound,
    /// A path that cannot be decoded.
    Malformed,
}

impl Route {
    pub fn is_probe(&self) -> bool {
        matches!(self, Self::Healthz | Self::Readyz)
    }

    /// Whether this is a page of metrics.
    pub fn is_of_metrics(&self) -> bool {
        matches!(
            self,
            Self::Metrics
                | Self::MetricsCadvisor
                | Self::MetricsResource
                | Self::MetricsSelf
                | Self::Extra(_, ExtraKind::Metrics)
        )
    }

    /// The subresource of `nodes` that a client must be allowed to get. The kubelet has the first two; `agent` covers
    /// process lists and debug pages.
    pub fn part_of_node(&self) -> &'static str {
        match self {
            Self::StatsSummary => "stats",
            page if page.is_of_metrics() => "metrics",
            _ => "agent",
        }
    }

    /// Whether this is an HTML page.
    pub fn is_page(&self) -> bool {
        matches!(
            self,
            Self::ContainersPage(_) | Self::RuntimePage(..) | Self::Static(_)
        )
    }

    /// Label value of the request counters.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Healthz | Self::Readyz => "health",
            Self::Metrics | Self::MetricsCadvisor => "metrics",
            Self::MetricsResource => "resource",
            Self::MetricsSelf => "self",
            Self::Extra(_, ExtraKind::Metrics) => "metrics",
            Self::StatsSummary => "summary",
            Self::Extra(_, ExtraKind::Debug | ExtraKind::Moved(_)) => "debug",
            Self::Sources | Self::Plan | Self::Validate => "debug",
            Self::Api(_) => "api",
            Self::ContainersPage(_) | Self::RuntimePage(..) | Self::Static(_) => "page",
            Self::Redirect { .. } => "redirect",
            Self::StatsNotFound | Self::NotFound | Self::Malformed => "unknown",
        }
    }
}

/// `path` and `query` as they were sent.
pub fn route(mounts: &Mounts, path: &str, query: Option<&str>) -> Route {
    let cleaned = clean(path);
    let with_query = |path: String| match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    if cleaned != path {
        return redirect_temporary(with_query(cleaned.into_owned()));
    }
    let Some(inner) = cleaned.strip_prefix(mounts.prefix.as_str()) else {
        return Route::NotFound;
    };
    if inner.is_empty() {
        return redirect_temporary(with_query(format!("{}/", mounts.prefix)));
    }
    if !inner.starts_with('/') {
        return Route::NotFound;
    }
    let Some(decoded) = decode(inner) else {
        return Route::Malformed;
    };
    if decoded == mounts.prometheus {
        return Route::Metrics;
    }
    let mut extra = mounts.extra.iter();
    if let Some(index) = extra.position(|(path, _)| *path == decoded) {
        return match mounts.extra[index].1 {
            ExtraKind::Moved(to) => {
                redirect_permanent(with_query(format!("{}{to}", mounts.prefix)))
            }
            kind => Route::Extra(index, kind),
        };
    }
    match decoded.as_str() {
        "/healthz" => return Route::Healthz,
        "/readyz" => return Route::Readyz,
        "/metrics/cadvisor" => return Route::MetricsCadvisor,
        "/metrics/resource" => return Route::MetricsResource,
        "/metrics/self" => return Route::MetricsSelf,
        "/stats/summary" | "/stats/summary/" => return Route::StatsSummary,
        "/debug/sources" => return Route::Sources,
        "/debug/plan" => return Route::Plan,
        "/api" | "/validate" | "/static" | "/stats" => {
            return redirect_temporary(with_query(format!("{}{inner}/", mounts.prefix)));
        }
        "/containers" | "/docker" | "/podman" => {
            return redirect_permanent(format!("{}{inner}/", mounts.prefix));
        }
        _ => {}
    }
    let below = |top: &str| {
        let rest = decoded.strip_prefix(top)?;
        rest.starts_with('/').then(|| rest.to_owned())
    };
    if below("/api").is_some() {
        return Route::Api(decoded);
    }
    if below("/validate").is_some() {
        return Route::Validate;
    }
    if let Some(rest) = below("/containers") {
        return Route::ContainersPage(rest);
    }
    if let Some(rest) = below("/docker") {
        return Route::RuntimePage(Namespace::Docker, rest);
    }
    if let Some(rest) = below("/podman") {
        return Route::RuntimePage(Namespace::Podman, rest);
    }
    if below("/static").is_some() {
        return Route::Static(decoded);
    }
    // Here the kubelet's answers count, not cAdvisor's.
    if below("/stats").is_some() {
        return Route::StatsNotFound;
    }
    if below("/metrics/cadvisor").is_some() || below("/metrics/resource").is_some() {
        return Route::NotFound;
    }
    redirect_temporary(format!("{}/containers/", mounts.prefix))
}

/// What Go's server does by itself since 1.26.
fn redirect_temporary(to: String) -> Route {
    Route::Redirect {
        to,
        permanent: false,
    }
}

/// What the original does itself.
fn redirect_permanent(to: String) -> Route {
    Route::Redirect {
        to,
        permanent: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Gathered;
    use proptest::prelude::*;

    fn to(path: &str) -> Route {
        let (path, query) = path
            .split_once('?')
            .map_or((path, None), |(p, q)| (p, Some(q)));
        route(&Mounts::default(), path, query)
    }

    fn unknown() -> Route {
        redirect_temporary("/containers/".to_owned())
    }

    #[test]
    fn as_the_original_answers() {
        for (path, expected) in [
            ("/", unknown()),
            ("/unknown", unknown()),
            ("/unknown/", unknown()),
            ("/apix", unknown()),
            ("/healthz/", unknown()),
            ("/metrics/", unknown()),
            ("/favicon.ico", unknown()),
            ("/debug/pprof/", unknown()),
            ("/index.html", unknown()),
            ("/%2e%2e/api", unknown()),
            ("/API/v1.3/machine", unknown()),
            ("/api", redirect_temporary("/api/".to_owned())),
            ("/api//", redirect_temporary("/api/".to_owned())),
            ("/api?x=1", redirect_temporary("/api/?x=1".to_owned())),
            ("/validate", redirect_temporary("/validate/".to_owned())),
            ("/static", redirect_temporary("/static/".to_owned())),
            ("/containers", redirect_permanent("/containers/".to_owned())),
            (
                "/containers?x",
                redirect_permanent("/containers/".to_owned()),
            ),
            ("/docker", redirect_permanent("/docker/".to_owned())),
            ("/podman", redirect_permanent("/podman/".to_owned())),
            ("/..", redirect_temporary("/".to_owned())),
            (
                "//api/v1.3/machine",
                redirect_temporary("/api/v1.3/machine".to_owned()),
            ),
            ("/validate/x", Route::Validate),
            ("/healthz?x", Route::Healthz),
            ("/api/", Route::Api("/api/".to_owned())),
            (
                "/api/v1.3/containers/%6b",
                Route::Api("/api/v1.3/containers/k".to_owned()),
            ),
            ("/containers/a/", Route::ContainersPage("/a/".to_owned())),
            (
                "/docker/a/b",
                Route::RuntimePage(Namespace::Docker, "/a/b".to_owned()),
            ),
            ("/metrics", Route::Metrics),
            ("/stats", redirect_temporary("/stats/".to_owned())),
            ("/stats/", Route::StatsNotFound),
            ("/stats/foo", Route::StatsNotFound),
            ("/stats/summary/", Route::StatsSummary),
            ("/stats/summary/x", Route::StatsNotFound),
            ("/statsx", unknown()),
            ("/metrics/cadvisor/", Route::NotFound),
            ("/metrics/resource/v1", Route::NotFound),
            ("/debug/plan", Route::Plan),
            ("/debug/extra", unknown()),
            ("/api/%zz", Route::Malformed),
        ] {
            assert_eq!(to(path), expected, "{path}");
        }
    }

    #[test]
    fn extra_routes_come_first_and_by_their_whole_path() {
        let json = |path| ExtraRoute {
            path,
            page: ExtraPage::Json(Box::new(|_| Ok(String::new()))),
        };
        let metrics = ExtraRoute {
            path: "/own-metrics",
            page: ExtraPage::Metrics(Box::new(Gathered::default)),
        };
        let moved = ExtraRoute {
            path: "/debug/old",
            page: ExtraPage::Moved("/debug/extra"),
        };
        let mounts = Mounts::new("/pre", "m").with_extra(&[json("/debug/extra"), metrics, moved]);
        let to = |path: &str| route(&mounts, path, None);
        let there = redirect_permanent("/pre/debug/extra?a=1".to_owned());
        assert_eq!(route(&mounts, "/pre/debug/old", Some("a=1")), there);
        let extra = to("/pre/debug/extra");
        assert_eq!(extra, Route::Extra(0, ExtraKind::Debug));
        assert_eq!((extra.class(), extra.is_of_metrics()), ("debug", false));
        let own = to("/pre/own-metrics");
        assert_eq!(own, Route::Extra(1, ExtraKind::Metrics));
        assert_eq!((own.class(), own.is_of_metrics()), ("metrics", true));
        assert_eq!(own.part_of_node(), "metrics");
        for path in ["/pre/debug/extra/", "/pre/own-metrics/x"] {
            assert_eq!(
                to(path),
                redirect_temporary("/pre/containers/".to_owned()),
                "{path}"
            );
        }
    }

    #[test]
    fn below_a_prefix() {
        let mounts = Mounts::new("/pre/", "m");
        let to = |path: &str| route(&mounts, path, None);
        assert_eq!(to("/"), Route::NotFound);
        assert_eq!(to("/prefix"), Route::NotFound);
        assert_eq!(to("/metrics"), Route::NotFound);
        assert_eq!(to("/pre"), redirect_temporary("/pre/".to_owned()));
        assert_eq!(to("/pre/m"), Route::Metrics);
        // The original forgets its prefix here and sends people to a page that does not exist.
        assert_eq!(to("/pre/api"), redirect_temporary("/pre/api/".to_owned()));
        assert_eq!(
            to("/pre/containers"),
            redirect_permanent("/pre/containers/".to_owned())
        );
        assert_eq!(
            to("/pre/x"),
            redirect_temporary("/pre/containers/".to_owned())
        );
    }

    proptest! {
        #[test]
        fn every_path_goes_somewhere(path: String, query: Option<String>) {
            route(&Mounts::default(), &path, query.as_deref());
            route(&Mounts::new("/a", "/b"), &path, query.as_deref());
        }
    }
}
