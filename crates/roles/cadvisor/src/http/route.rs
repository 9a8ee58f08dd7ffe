//! From a path to what answers it. Pure: no request is needed to know where one goes.

use plimsoll_containers::Namespace;

use super::extra::{ExtraPage, ExtraRoute};
use super::url::{clean, decode};

/// Where the interface hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
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

impl Places {
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
            ExtraPage::Metrics(_) => ExtraKind::Metrics,
            ExtraPage::Json(_) => ExtraKind::Debug,
            ExtraPage::Moved(to) => ExtraKind::Moved(to),
        };
        let routes = routes.iter().map(|route| (route.path, kind(&route.page)));
        self.extra = routes.collect();
        self
    }
}

impl Default for Places {
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
    NoStats,
    Sources,
    Plan,
    /// One of the extra routes, by its place in the list.
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

    /// What Prometheus reads.
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

    /// The subresource of `nodes` that whoever asks must be allowed to get. Kubelets know the first two; the last has what
    /// processes there are and how the agent works.
    pub fn part_of_node(&self) -> &'static str {
        match self {
            Self::StatsSummary => "stats",
            page if page.is_of_metrics() => "metrics",
            _ => "agent",
        }
    }

    /// People's pages, as opposed to what programs read.
    pub fn is_page(&self) -> bool {
        matches!(
            self,
            Self::ContainersPage(_) | Self::RuntimePage(..) | Self::Static(_)
        )
    }

    /// What it is counted under.
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
            Self::NoStats | Self::NotFound | Self::Malformed => "unknown",
        }
    }
}

/// `path` and `query` as they were sent.
pub fn route(places: &Places, path: &str, query: Option<&str>) -> Route {
    let cleaned = clean(path);
    let with_query = |path: String| match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    if cleaned != path {
        return for_now(with_query(cleaned.into_owned()));
    }
    let Some(inner) = cleaned.strip_prefix(places.prefix.as_str()) else {
        return Route::NotFound;
    };
    if inner.is_empty() {
        return for_now(with_query(format!("{}/", places.prefix)));
    }
    if !inner.starts_with('/') {
        return Route::NotFound;
    }
    let Some(decoded) = decode(inner) else {
        return Route::Malformed;
    };
    if decoded == places.prometheus {
        return Route::Metrics;
    }
    let mut extra = places.extra.iter();
    if let Some(index) = extra.position(|(path, _)| *path == decoded) {
        return match places.extra[index].1 {
            ExtraKind::Moved(to) => permanent(with_query(format!("{}{to}", places.prefix))),
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
            return for_now(with_query(format!("{}{inner}/", places.prefix)));
        }
        "/containers" | "/docker" | "/podman" => {
            return permanent(format!("{}{inner}/", places.prefix));
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
        return Route::NoStats;
    }
    if below("/metrics/cadvisor").is_some() || below("/metrics/resource").is_some() {
        return Route::NotFound;
    }
    for_now(format!("{}/containers/", places.prefix))
}

/// What Go's server does by itself since 1.26.
fn for_now(to: String) -> Route {
    Route::Redirect {
        to,
        permanent: false,
    }
}

/// What the original does itself.
fn permanent(to: String) -> Route {
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
        route(&Places::default(), path, query)
    }

    fn unknown() -> Route {
        for_now("/containers/".to_owned())
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
            ("/api", for_now("/api/".to_owned())),
            ("/api//", for_now("/api/".to_owned())),
            ("/api?x=1", for_now("/api/?x=1".to_owned())),
            ("/validate", for_now("/validate/".to_owned())),
            ("/static", for_now("/static/".to_owned())),
            ("/containers", permanent("/containers/".to_owned())),
            ("/containers?x", permanent("/containers/".to_owned())),
            ("/docker", permanent("/docker/".to_owned())),
            ("/podman", permanent("/podman/".to_owned())),
            ("/..", for_now("/".to_owned())),
            (
                "//api/v1.3/machine",
                for_now("/api/v1.3/machine".to_owned()),
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
            ("/stats", for_now("/stats/".to_owned())),
            ("/stats/", Route::NoStats),
            ("/stats/foo", Route::NoStats),
            ("/stats/summary/", Route::StatsSummary),
            ("/stats/summary/x", Route::NoStats),
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
        let places = Places::new("/pre", "m").with_extra(&[json("/debug/extra"), metrics, moved]);
        let to = |path: &str| route(&places, path, None);
        let there = permanent("/pre/debug/extra?a=1".to_owned());
        assert_eq!(route(&places, "/pre/debug/old", Some("a=1")), there);
        let extra = to("/pre/debug/extra");
        assert_eq!(extra, Route::Extra(0, ExtraKind::Debug));
        assert_eq!((extra.class(), extra.is_of_metrics()), ("debug", false));
        let own = to("/pre/own-metrics");
        assert_eq!(own, Route::Extra(1, ExtraKind::Metrics));
        assert_eq!((own.class(), own.is_of_metrics()), ("metrics", true));
        assert_eq!(own.part_of_node(), "metrics");
        for path in ["/pre/debug/extra/", "/pre/own-metrics/x"] {
            assert_eq!(to(path), for_now("/pre/containers/".to_owned()), "{path}");
        }
    }

    #[test]
    fn below_a_prefix() {
        let places = Places::new("/pre/", "m");
        let to = |path: &str| route(&places, path, None);
        assert_eq!(to("/"), Route::NotFound);
        assert_eq!(to("/prefix"), Route::NotFound);
        assert_eq!(to("/metrics"), Route::NotFound);
        assert_eq!(to("/pre"), for_now("/pre/".to_owned()));
        assert_eq!(to("/pre/m"), Route::Metrics);
        // The original forgets its prefix here and sends people to a page that does not exist.
        assert_eq!(to("/pre/api"), for_now("/pre/api/".to_owned()));
        assert_eq!(
            to("/pre/containers"),
            permanent("/pre/containers/".to_owned())
        );
        assert_eq!(to("/pre/x"), for_now("/pre/containers/".to_owned()));
    }

    proptest! {
        #[test]
        fn every_path_goes_somewhere(path: String, query: Option<String>) {
            route(&Places::default(), &path, query.as_deref());
            route(&Places::new("/a", "/b"), &path, query.as_deref());
        }
    }
}
