//! Named health checks, for one check or all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use plimsoll_waiting::Repeated;

use super::text;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_golang::url::unescape;
use plimsoll_metrics::Exposition;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Should it be restarted?
    Livez,
    /// Should it be asked?
    Readyz,
    /// Both, from a time when nobody told them apart.
    Healthz,
}

impl Endpoint {
    pub const ALL: [Self; 3] = [Self::Livez, Self::Readyz, Self::Healthz];

    fn name(self) -> &'static str {
        match self {
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Healthz => "healthz",
        }
    }
}

/// Whether a request for this path asks how a server is: those are answered however much there is to do.
pub fn is_health_check(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    Endpoint::ALL
        .iter()
        .any(|endpoint| endpoint.name() == first)
}

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of each endpoint, in the order they were added. Clones count together.
#[derive(Clone)]
pub struct Health {
    checks: Vec<Named>,
    tally: Arc<Mutex<Tally>>,
    trouble: Arc<Mutex<BTreeMap<&'static str, Repeated>>>,
}

/// By name and endpoint: how the check ended the last time, and how often it passed and failed.
type Tally = BTreeMap<(String, &'static str), (bool, u64, u64)>;

#[derive(Clone)]
struct Named {
    name: String,
    endpoints: Vec<Endpoint>,
    check: Check,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.checks.iter().map(|check| &check.name);
        f.debug_list().entries(names).finish()
    }
}

impl Default for Health {
    /// With `ping`, which passes if it is answered at all.
    fn default() -> Self {
        Self::bare().with(&Endpoint::ALL, "ping", || Ok(()))
    }
}

impl Health {
    /// With no checks at all, not even `ping`.
    pub fn bare() -> Self {
        Self {
            checks: Vec::new(),
            tally: Arc::default(),
            trouble: Arc::default(),
        }
    }

    /// One more. Checks are called by whoever asks, as often as they like: they must be quick and must not wait.
    pub fn with(
        mut self,
        endpoints: &[Endpoint],
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.push(Named {
            name: name.into(),
            endpoints: endpoints.to_vec(),
            check: Arc::new(check),
        });
        self
    }

    /// Not ready any more as soon as stopping begins, so that nobody new is sent here while the last are served.
    pub fn with_shutdown(self, shutdown: Shutdown) -> Self {
        self.with(&[Endpoint::Readyz], "shutdown", move || {
            match shutdown.has_begun() {
                true => Err("process is shutting down".to_owned()),
                false => Ok(()),
            }
        })
    }

    /// How checks ended, for `/metrics/slis`.
    pub fn write(&self, page: &mut Exposition) {
        let tally = self.tally.lock();
        if tally.is_empty() {
            return;
        }
        let name = "kubernetes_healthcheck";
        page.family(name, "gauge", "[STABLE] How a check ended the last time.");
        for ((check, endpoint), (passed, ..)) in &*tally {
            let labels = [("name", check.as_str()), ("type", *endpoint)];
            page.sample(name, &labels, f64::from(u8::from(*passed)));
        }
        let name = "kubernetes_healthchecks_total";
        page.family(
            name,
            "counter",
            "[STABLE] How often checks passed and failed.",
        );
        for ((check, endpoint), (_, passed, failed)) in &*tally {
            for (status, number) in [("error", *failed), ("success", *passed)] {
                if number > 0 {
                    let labels = [
                        ("name", check.as_str()),
                        ("status", status),
                        ("type", *endpoint),
                    ];
                    page.sample(name, &labels, number as f64);
                }
            }
        }
    }

    /// All paths that are answered.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for endpoint in Endpoint::ALL {
            let name = endpoint.name();
            paths.push(format!("/{name}"));
            let checks = self.checks.iter();
            let checks = checks.filter(|check| check.endpoints.contains(&endpoint));
            paths.extend(checks.map(|check| format!("/{name}/{}", check.name)));
        }
        paths
    }

    /// `None`: not one of ours.
    pub fn answer(&self, path: &str, query: Option<&str>) -> Option<Response<Full<Bytes>>> {
        let path = path.strip_prefix('/')?;
        let (name, rest) = match path.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        let endpoint = Endpoint::ALL.into_iter().find(|e| e.name() == name)?;
        let mut checks = self
            .checks
            .iter()
            .filter(|c| c.endpoints.contains(&endpoint));
        match rest {
            None => {
                let mut tally = self.tally.lock();
                let query = query.unwrap_or_default();
                Some(all(endpoint, checks, query, &mut tally, &self.trouble))
            }
            Some(one) => {
                let check = checks.find(|check| check.name == one)?;
                Some(match (check.check)() {
                    Ok(()) => text(StatusCode::OK, "ok", false),
                    Err(why) => {
                        let body = format!("internal server error: {why}\n");
                        text(StatusCode::INTERNAL_SERVER_ERROR, body, true)
                    }
                })
            }
        }
    }
}

fn all<'a>(
    endpoint: Endpoint,
    checks: impl Iterator<Item = &'a Named>,
    query: &str,
    tally: &mut Tally,
    trouble: &Mutex<BTreeMap<&'static str, Repeated>>,
) -> Response<Full<Bytes>> {
    let pairs = || {
        query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    };
    let excluded = pairs().filter(|(key, _)| *key == "exclude");
    let mut excluded: BTreeSet<String> = excluded
        .filter_map(|(_, name)| unescape(name, true))
        .collect();
    let name = endpoint.name();
    let mut lines = String::new();
    let mut failed = Vec::new();
    for check in checks {
        let line = if excluded.remove(&check.name) {
            format!("[+]{} excluded: ok\n", check.name)
        } else {
            let found = (check.check)();
            let counted = tally.entry((check.name.clone(), name)).or_default();
            counted.0 = found.is_ok();
            counted.1 += u64::from(found.is_ok());
            counted.2 += u64::from(found.is_err());
            match found {
                Ok(()) => format!("[+]{} ok\n", check.name),
                Err(why) => {
                    // Anybody may ask; why it failed is for those who may read the log, or ask for this check alone.
                    failed.push(format!("{}: {why}", check.name));
                    format!("[-]{} failed: reason withheld\n", check.name)
                }
            }
        };
        lines.push_str(&line);
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {names}\n"
        ));
    }
    let mut trouble = trouble.lock();
    let trouble = trouble.entry(name).or_default();
    if failed.is_empty()
        && let Some(over) = trouble.well()
    {
        let (failures, seconds) = (over.failures, over.lasted.as_secs());
        tracing::info!(name, failures, seconds, "health check passes again");
    }
    if !failed.is_empty() {
        if let Some(said) = trouble.failed() {
            let (failed, times) = (failed.join("; "), said.times);
            tracing::info!(name, failed, times, "health check failed");
        }
        let body = format!("{lines}{name} check failed\n");
        return text(StatusCode::INTERNAL_SERVER_ERROR, body, true);
    }
    match pairs().any(|(key, _)| key == "verbose") {
        true => text(
            StatusCode::OK,
            format!("{lines}{name} check passed\n"),
            true,
        ),
        false => text(StatusCode::OK, "ok", true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn ask(health: &Health, path: &str, query: &str) -> (u16, String) {
        let (head, body) = health.answer(path, Some(query)).unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (
            head.status.as_u16(),
            String::from_utf8(body.to_vec()).unwrap(),
        )
    }

    fn sick() -> Health {
        Health::default()
            .with(&Endpoint::ALL, "poststarthook/x", || Ok(()))
            .with(&[Endpoint::Readyz], "informer-sync", || {
                Err("nodes are missing".to_owned())
            })
    }

    #[tokio::test]
    async fn the_words_people_know() {
        let health = sick();
        let check = async |path: &str, query: &str, code: u16, expect: &str| {
            let answer = ask(&health, path, query).await;
            assert_eq!(answer, (code, expect.to_owned()), "{path}?{query}");
        };
        check("/livez", "", 200, "ok").await;
        let verbose = "[+]ping ok\n[+]poststarthook/x ok\nlivez check passed\n";
        for query in ["verbose", "verbose=true", "verbose=false", "a=b&verbose"] {
            check("/livez", query, 200, verbose).await;
        }
        check(
            "/readyz",
            "",
            500,
            "[+]ping ok\n[+]poststarthook/x ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n",
        )
        .await;
        check("/readyz", "exclude=informer-sync", 200, "ok").await;
        check(
            "/readyz",
            "verbose&exclude=informer-sync&exclude=poststarthook%2Fx&exclude=z&exclude=b+c",
            200,
            "[+]ping ok\n[+]poststarthook/x excluded: ok\n[+]informer-sync excluded: ok\n\
             warn: some health checks cannot be excluded: no matches for \"b c\",\"z\"\nreadyz check passed\n",
        )
        .await;
        check("/readyz/ping", "", 200, "ok").await;
        check("/livez/poststarthook/x", "", 200, "ok").await;
        check(
            "/readyz/informer-sync",
            "verbose",
            500,
            "internal server error: nodes are missing\n",
        )
        .await;
    }

    #[test]
    fn what_is_not_ours() {
        let health = sick();
        for path in [
            "/",
            "/livez/",
            "/livez/informer-sync",
            "/livezz",
            "/metrics",
            "livez",
        ] {
            assert!(health.answer(path, None).is_none(), "{path}");
        }
        let healthy = health.answer("/healthz", None).unwrap();
        assert_eq!(healthy.headers()["x-content-type-options"], "nosniff");
        assert_eq!(
            healthy.headers()["content-type"],
            "text/plain; charset=utf-8"
        );
    }

    #[tokio::test]
    async fn checks_are_counted() {
        let health = sick();
        ask(&health, "/readyz", "").await;
        ask(&health, "/readyz", "exclude=informer-sync").await;
        // One alone is for whoever looks for the reason.
        ask(&health, "/readyz/ping", "").await;
        let mut page = Exposition::default();
        health.clone().write(&mut page);
        let page = page.finish();
        for line in [
            "kubernetes_healthcheck{name=\"informer-sync\",type=\"readyz\"} 0\n",
            "kubernetes_healthchecks_total{name=\"informer-sync\",status=\"error\",type=\"readyz\"} 1\n",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 2\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }

    #[tokio::test]
    async fn who_is_stopping_is_alive_and_not_ready() {
        let (stopper, shutdown) = plimsoll_client::shutdown::channel();
        let health = Health::default().with_shutdown(shutdown);
        assert_eq!(ask(&health, "/readyz", "").await.0, 200);
        stopper.stop();
        let (code, text) = ask(&health, "/readyz", "").await;
        assert_eq!(code, 500);
        assert!(
            text.contains("[-]shutdown failed: reason withheld\n"),
            "{text}"
        );
        assert_eq!(ask(&health, "/livez", "").await.0, 200);
    }
}
