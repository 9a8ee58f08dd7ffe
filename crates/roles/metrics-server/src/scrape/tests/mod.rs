//! Scraping kubelets of every kind, over real sockets.

mod crowd;
mod kubelet;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_apimachinery::selector::Selector;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::ShutdownTrigger;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use self::kubelet::{Authority, Kind, Kubelet};
use super::*;
use crate::labels::Labels;
use crate::metadata::{NodeChange, NodeInfo};
use crate::store::{Settings, Store};
use crate::view::{Found, View};

/// Short, for there is a lot of waiting for the next scrape.
const RESOLUTION: Duration = Duration::from_millis(250);
/// Much longer than anything here takes, on a busy machine, too.
const SOON: Duration = Duration::from_secs(120);
/// For kubelets that are to take too long.
const IMPATIENT: Duration = Duration::from_millis(800);

/// A scraper and its kubelets.
struct World {
    store: Store,
    view: View,
    telemetry: Telemetry,
    changes: UnboundedSender<NodeChange>,
    authority: Authority,
    _files: tempfile::TempDir,
    _stopper: ShutdownTrigger,
}

impl World {
    fn new(change: impl FnOnce(&mut Config, &mut Settings)) -> Self {
        Self::every(RESOLUTION, change)
    }

    fn every(resolution: Duration, change: impl FnOnce(&mut Config, &mut Settings)) -> Self {
        let authority = Authority::new();
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("ca.crt");
        std::fs::write(&path, authority.pem()).unwrap();
        let mut settings = Settings::new(resolution);
        settings.keep = SOON;
        let mut config = Config {
            rules: Rules {
                port: 1,
                use_status_port: true,
                address_types: vec!["InternalIP".to_owned()],
                plain: false,
            },
            trust: Trust {
                authority: Some(path),
                ..Trust::default()
            },
            // A scrape that a busy machine holds up is not to fail for it.
            request_timeout: SOON,
            concurrency: 8,
            page_limit: 1 << 20,
            user_agent: "test".to_owned(),
        };
        change(&mut config, &mut settings);
        let mut identity = kube::Config::new("https://localhost:1".parse().unwrap());
        identity.auth_info.token = Some("secret".to_owned().into());
        let identity = Arc::new(identity);
        let source: Source = Arc::new(move || Arc::clone(&identity));
        let store = Store::new(settings);
        let telemetry = Telemetry::new(resolution);
        let scraper = Scraper::new(config, source, store.clone(), telemetry.clone()).unwrap();
        let (stopper, shutdown) = shutdown::channel();
        let (changes, told) = unbounded_channel();
        tokio::spawn(scraper.run(told, shutdown));
        Self {
            view: View::new(store.clone()),
            store,
            telemetry,
            changes,
            authority,
            _files: files,
            _stopper: stopper,
        }
    }

    async fn kubelet(&self, name: &str, kind: Kind) -> Kubelet {
        let tls = self.authority.acceptor(&["127.0.0.1"]);
        self.kubelet_with(name, kind, tls).await
    }

    async fn kubelet_with(&self, name: &str, kind: Kind, tls: TlsAcceptor) -> Kubelet {
        let kubelet = Kubelet::start(name, kind, Some(tls)).await;
        self.join(name, &kubelet);
        kubelet
    }

    fn join(&self, name: &str, kubelet: &Kubelet) {
        self.store.put_node(name, Labels::default());
        self.store.put_pod("n", name, Labels::default());
        let info = NodeInfo {
            name: name.into(),
            addresses: vec![("InternalIP".to_owned(), kubelet.address.ip().to_string())],
            port: Some(kubelet.address.port()),
            path: None,
            ready: true,
        };
        self.changes.send(NodeChange::Put(info)).unwrap();
    }

    fn nodes(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.view.visit_nodes(&Selector::default(), &mut |row| {
            names.push(row.name.to_owned())
        });
        names
    }

    fn pods(&self) -> Vec<String> {
        let mut names = Vec::new();
        let all = Selector::default();
        self.view
            .visit_pods(None, &all, None, None, 10_000, &mut |row| {
                names.push(row.name.to_owned())
            });
        names
    }

    fn failures(&self, wanted: Reason) -> u64 {
        let mut all = self.telemetry.failures();
        all.find_map(|(reason, count)| (reason == wanted).then_some(count))
            .unwrap()
    }
}

/// Polls until it holds.
async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_kubelet_is_scraped_on_one_connection() {
    for kind in [
        Kind::Good,
        Kind::Zipped,
        Kind::Slow(Duration::from_millis(100)),
    ] {
        let world = World::new(|_, _| {});
        let kubelet = world.kubelet("a", kind).await;
        soon("figures", || {
            world.nodes() == ["a"] && world.pods() == ["a"]
        })
        .await;
        soon("more of them", || kubelet.requests() >= 4).await;
        assert_eq!(kubelet.connections(), 1);
        let usage = world.view.node("a", |row| row.usage);
        let Found::Found(usage) = usage else {
            panic!("{usage:?}")
        };
        assert!(
            usage.nanocores.abs_diff(500_000_000) < 5_000_000,
            "{usage:?}"
        );
        let request = kubelet.state.last_request.lock().clone();
        for line in [
            "GET /metrics/resource HTTP/1.1\r\n",
            &format!("Host: {}\r\n", kubelet.address),
            "User-Agent: test\r\n",
            "Accept-Encoding: gzip\r\n",
            "Authorization: Bearer secret\r\n",
        ] {
            assert!(request.contains(line), "{line:?} is not in {request:?}");
        }
        assert!(!request.to_lowercase().contains("\naccept:"), "{request}");
    }
}

/// A bad kubelet is counted by this reason, and its neighbour does not suffer.
async fn check(kind: Kind, reason: Reason) {
    let world = World::new(|config, _| {
        if reason == Reason::Timeout {
            config.request_timeout = IMPATIENT;
        }
    });
    let bad = world.kubelet("bad", kind.clone()).await;
    let good = world.kubelet("good", Kind::Good).await;
    let what = format!("{kind:?}");
    soon(&what, || {
        world.failures(reason) >= 2 && world.nodes() == ["good"]
    })
    .await;
    // One look at all of them, for scraping goes on.
    let counted = world.telemetry.failures().filter(|(_, count)| *count > 0);
    let counted: Vec<Reason> = counted.map(|(reason, _)| reason).collect();
    assert_eq!(counted, [reason], "{what}");
    soon(&what, || good.requests() >= 3).await;
    // Figures come as soon as it is well.
    bad.becomes(Kind::Good);
    soon(&what, || world.nodes() == ["bad", "good"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_bad_is_counted_for_what_it_is() {
    let zeros = vec![0; 100];
    let html = b"<html>not me</html>".to_vec();
    let broken_gzip =
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc".to_vec();
    let checks = [
        (Kind::Hung, Reason::Timeout),
        (Kind::HalfWay, Reason::Timeout),
        (Kind::Slow(Duration::from_secs(5)), Reason::Timeout),
        (Kind::Lying(zeros.clone()), Reason::Malformed),
        (Kind::Lying(html), Reason::Malformed),
        (Kind::Lying(b"a{b=\"\xff\"} 1".to_vec()), Reason::Malformed),
        (Kind::Raw(zeros), Reason::Protocol),
        (Kind::Raw(broken_gzip), Reason::Protocol),
        (Kind::Endless, Reason::TooLarge),
        (Kind::Bomb, Reason::TooLarge),
        (Kind::Lying(vec![b'\n'; (1 << 20) + 1]), Reason::TooLarge),
        (Kind::Status("403 Forbidden"), Reason::Status),
        (Kind::Status("204 No Content"), Reason::Status),
        (Kind::Redirect("/again".to_owned()), Reason::Protocol),
        (Kind::Redirect("nowhere".to_owned()), Reason::Protocol),
        (Kind::NoTls, Reason::Tls),
    ];
    let checks = checks.map(|(kind, reason)| tokio::spawn(check(kind, reason)));
    for check in checks {
        check.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_must_be_right() {
    let world = World::new(|_, _| {});
    let stranger = Authority::new();
    let unknown = Kubelet::start(
        "unknown",
        Kind::Good,
        Some(stranger.acceptor(&["127.0.0.1"])),
    )
    .await;
    let misnamed = world.authority.acceptor(&["10.1.2.3"]);
    let misnamed = Kubelet::start("misnamed", Kind::Good, Some(misnamed)).await;
    world.join("unknown", &unknown);
    world.join("misnamed", &misnamed);
    soon("both fail", || world.failures(Reason::Tls) >= 4).await;
    assert!(world.nodes().is_empty());
    assert_eq!(
        (unknown.requests(), misnamed.requests()),
        (0, 0),
        "no token is sent"
    );
    // Unless nobody cares.
    let world = World::new(|config, _| {
        config.trust = Trust {
            insecure: true,
            ..Trust::default()
        };
    });
    world.join("unknown", &unknown);
    soon("figures", || world.nodes() == ["unknown"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_replaced_without_a_lost_scrape() {
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (files.path().join("c.crt"), files.path().join("c.key"));
    let clients = Authority::new();
    let put = |pair: &(rcgen::Certificate, rcgen::KeyPair)| {
        for (path, text) in [(&key, pair.1.serialize_pem()), (&cert, pair.0.pem())] {
            let beside = path.with_extension("new");
            std::fs::write(&beside, text).unwrap();
            std::fs::rename(&beside, path).unwrap();
        }
    };
    let first = clients.client();
    put(&first);
    let authority = files.path().join("kubelets.crt");
    std::fs::write(&authority, clients.pem()).unwrap();
    let world = World::new(|config, _| {
        config.trust = Trust {
            authority: Some(authority.clone()),
            client: Some((cert.clone(), key.clone())),
            ..Trust::default()
        };
    });
    let tls = clients.acceptor_of(&["127.0.0.1"], true);
    let kubelet = world.kubelet_with("a", Kind::Good, tls).await;
    soon("figures", || world.nodes() == ["a"]).await;
    let shown = || kubelet.state.shown.lock().clone();
    assert_eq!(shown().as_deref(), Some(first.0.der().as_ref()));
    let second = clients.client();
    put(&second);
    soon("the next is shown", || {
        // Between two scrapes; it is for new connections.
        kubelet.hang_up();
        shown().as_deref() == Some(second.0.der().as_ref())
    })
    .await;
    let asked = kubelet.requests();
    soon("it goes on", || kubelet.requests() > asked + 2).await;
    assert_eq!(world.telemetry.totals().failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_nothing_is_told() {
    let world = World::new(|config, _| {
        config.rules.plain = true;
        config.trust = Trust {
            nothing: true,
            ..Trust::default()
        };
    });
    let kubelet = Kubelet::start("a", Kind::Good, None).await;
    world.join("a", &kubelet);
    soon("figures", || world.nodes() == ["a"]).await;
    assert!(!kubelet.state.last_request.lock().contains("Authorization"));
}

#[tokio::test(flavor = "multi_thread")]
async fn redirections_are_followed_without_the_token() {
    let world = World::new(|_, _| {});
    let elsewhere = Kubelet::start("a", Kind::Good, None).await;
    let to = format!("http://{}/there", elsewhere.address);
    let kubelet = world.kubelet("a", Kind::Redirect(to)).await;
    soon("figures", || world.nodes() == ["a"]).await;
    assert!(kubelet.state.last_request.lock().contains("Authorization"));
    let request = elsewhere.state.last_request.lock().clone();
    assert!(request.starts_with("GET /there "), "{request}");
    assert!(!request.contains("Authorization"), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_closed_is_opened_again() {
    let world = World::new(|_, _| {});
    let kubelet = world.kubelet("a", Kind::Closing).await;
    soon("figures", || {
        world.nodes() == ["a"] && kubelet.requests() >= 4
    })
    .await;
    assert_eq!(world.telemetry.totals().failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_good_figures_stay_with_their_time() {
    let world = World::new(|config, _| config.request_timeout = IMPATIENT);
    let kubelet = world.kubelet("a", Kind::Good).await;
    soon("figures", || world.nodes() == ["a"]).await;
    kubelet.becomes(Kind::Hung);
    let failed = world.telemetry.totals().failed;
    soon("it fails", || world.telemetry.totals().failed > failed).await;
    let at = |view: &View| match view.node("a", |row| row.usage.at) {
        Found::Found(at) => at,
        other => panic!("{other:?}"),
    };
    let before = at(&world.view);
    soon("it fails again", || {
        world.telemetry.totals().failed > failed + 1
    })
    .await;
    assert_eq!(at(&world.view), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_that_are_too_old_are_not_shown() {
    let world = World::new(|config, settings| {
        config.request_timeout = IMPATIENT;
        settings.keep = 2 * RESOLUTION;
    });
    let kubelet = world.kubelet("a", Kind::Good).await;
    soon("figures", || {
        world.nodes() == ["a"] && world.pods() == ["a"]
    })
    .await;
    kubelet.becomes(Kind::Hung);
    soon("too old", || {
        world.nodes().is_empty() && world.pods().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_go_take_their_series_along() {
    let world = World::new(|_, _| {});
    let kubelet = world.kubelet("a", Kind::Good).await;
    let stays = world.kubelet("b", Kind::Good).await;
    soon("figures", || world.nodes() == ["a", "b"]).await;
    world.store.remove_node("a");
    world.changes.send(NodeChange::Gone("a".into())).unwrap();
    let known = || {
        let mut names = Vec::new();
        world
            .telemetry
            .visit_nodes(&mut |name, _, _| names.push(name.to_owned()));
        names
    };
    soon("gone", || world.nodes() == ["b"] && known() == ["b"]).await;
    let (gone, still) = (kubelet.requests(), stays.requests());
    soon("the other is asked on", || stays.requests() >= still + 4).await;
    // One may have been on its way.
    assert!(kubelet.requests() <= gone + 1);
    assert_eq!(known(), ["b"]);
}
