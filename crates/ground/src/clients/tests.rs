//! Clients against a real server of our own, with certificates that change.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tower::service_fn;

use super::*;
use crate::pki::Authority;
use crate::serve::{self, Peer, Serving, Tls};

const SOON: Duration = Duration::from_secs(60);

type Seen = Arc<Mutex<Vec<String>>>;

/// Tells who asked, by certificate and user agent, and how.
async fn server(authority: &Authority) -> (Serving, Seen) {
    let mut tls = Tls::new(authority.server().given());
    tls.clients = serve::Clients::Requested(vec![authority.trust()]);
    let config = serve::Config {
        tls: Some(tls),
        ..serve::Config::loopback()
    };
    let seen = Seen::default();
    let told = Arc::clone(&seen);
    let serving =
        config
            .bind()
            .await
            .unwrap()
            .spawn(service_fn(move |request: Request<Incoming>| {
                let peer = request.extensions().get::<Peer>().unwrap();
                let name = peer
                    .certificates
                    .first()
                    .map(|leaf| crate::auth::common_name(leaf).unwrap());
                let agent = request.headers()["user-agent"].to_str().unwrap();
                told.lock()
                    .push(format!("{} {agent}", name.unwrap_or_default()));
                let version = r#"{"major":"1","minor":"36","gitVersion":"v1.36.0","gitCommit":"",
            "gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
                async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(version)))) }
            }));
    (serving, seen)
}

fn write_kubeconfig(dir: &Path, address: &str, authority: &Authority) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         clusters:\n- name: c\n  cluster:\n    server: {address}\n    certificate-authority: ca.crt\n\
         contexts:\n- name: here\n  context: {{cluster: c, user: u}}\n\
         users:\n- name: u\n  user: {{client-certificate: client.crt, client-key: client.key}}\n"
    );
    std::fs::write(dir.join("ca.crt"), authority.pem()).unwrap();
    std::fs::write(dir.join("kubeconfig"), text).unwrap();
}

fn write_client(dir: &Path, authority: &Authority, name: &str) {
    let pair = authority.client(name, "o");
    std::fs::write(dir.join("client.crt"), pair.cert).unwrap();
    std::fs::write(dir.join("client.key"), pair.key).unwrap();
}

#[tokio::test]
async fn a_rotated_certificate_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (serving, seen) = server(&authority).await;
    let address = format!("https://{}", serving.local_addr());
    write_kubeconfig(dir.path(), &address, &authority);
    write_client(dir.path(), &authority, "first");
    let mut config = Config::from_flag(Some(dir.path().join("kubeconfig")));
    config.user_agent = "scheduler".to_owned();
    let clients = config.build().await.unwrap();
    let (_stopper, shutdown) = crate::shutdown::channel();
    clients.spawn_reload(shutdown);
    let client = clients.client();
    client.apiserver_version().await.unwrap();
    let election = clients.client_for("leader-election", None, SOON);
    election.apiserver_version().await.unwrap();
    {
        let seen = seen.lock();
        assert!(
            seen[0].starts_with("first plimsoll/0.1.0 (linux/"),
            "{}",
            seen[0]
        );
        assert!(seen[0].ends_with(") scheduler"), "{}", seen[0]);
        assert!(
            seen[1].ends_with(") scheduler leader-election"),
            "{}",
            seen[1]
        );
    }
    write_client(dir.path(), &authority, "second");
    let rotated = async {
        // The very same client.
        while !seen.lock().last().unwrap().starts_with("second ") {
            client.apiserver_version().await.unwrap();
        }
    };
    tokio::time::timeout(SOON, rotated).await.unwrap();

    // The cluster moves, and with it its authority.
    let elsewhere = Authority::new();
    let (moved, arrived) = server(&elsewhere).await;
    write_client(dir.path(), &elsewhere, "third");
    write_kubeconfig(
        dir.path(),
        &format!("https://{}", moved.local_addr()),
        &elsewhere,
    );
    let followed = async {
        while arrived.lock().is_empty() {
            let _ = client.apiserver_version().await;
        }
    };
    tokio::time::timeout(SOON, followed).await.unwrap();
}

#[tokio::test]
async fn credentials_that_will_not_do_are_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (serving, _) = server(&authority).await;
    write_kubeconfig(
        dir.path(),
        &format!("https://{}", serving.local_addr()),
        &authority,
    );
    write_client(dir.path(), &authority, "first");
    let config = Config::from_flag(Some(dir.path().join("kubeconfig")));
    let clients = config.build().await.unwrap();
    std::fs::write(dir.path().join("client.key"), "rubbish").unwrap();
    clients.reload().await.unwrap_err();
    clients.client().apiserver_version().await.unwrap();
}

#[tokio::test]
async fn requests_keep_to_their_rate() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (serving, seen) = server(&authority).await;
    write_kubeconfig(
        dir.path(),
        &format!("https://{}", serving.local_addr()),
        &authority,
    );
    write_client(dir.path(), &authority, "client");
    let mut config = Config::from_flag(Some(dir.path().join("kubeconfig")));
    config.rate = Some((50.0, 5));
    let client = config.build().await.unwrap().client();
    let began = std::time::Instant::now();
    for _ in 0..10 {
        client.apiserver_version().await.unwrap();
    }
    // Five at once, five more a fiftieth of a second apart.
    assert!(
        began.elapsed() >= Duration::from_millis(95),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(seen.lock().len(), 10);
}

#[tokio::test]
async fn what_is_wrong_is_said_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let path = dir.path().join("kubeconfig");
    let source = |context: Option<&str>| Source::Kubeconfig {
        path: path.clone(),
        context: context.map(str::to_owned),
    };
    let error = async |source| Config::new(source).build().await.unwrap_err().to_string();
    let text = error(source(None)).await;
    assert!(text.contains("--kubeconfig"), "{text}");
    write_kubeconfig(dir.path(), "https://127.0.0.1:1", &authority);
    let text = error(source(Some("elsewhere"))).await;
    assert!(
        text.ends_with("has no context \"elsewhere\"; it has: here"),
        "{text}"
    );
    // The certificate is missing.
    let text = error(source(None)).await;
    assert!(text.contains("check the certificates and keys"), "{text}");
    let broken = dir.path().join("broken");
    std::fs::write(&broken, ": no yaml [").unwrap();
    let text = error(Source::Kubeconfig {
        path: broken,
        context: None,
    })
    .await;
    assert!(text.ends_with("cannot be used"), "{text}");
}

#[tokio::test]
async fn failures_on_the_way_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    write_client(dir.path(), &authority, "client");
    let ask = async |address: &str, authority: &Authority| {
        write_kubeconfig(dir.path(), address, authority);
        let config = Config::from_flag(Some(dir.path().join("kubeconfig")));
        let client = config.build().await.unwrap().client();
        explain(&client.apiserver_version().await.unwrap_err())
    };
    let text = ask("https://127.0.0.1:1", &authority).await;
    assert!(text.contains("is the API server running"), "{text}");
    let (serving, _) = server(&authority).await;
    let address = format!("https://{}", serving.local_addr());
    let text = ask(&address, &Authority::new()).await;
    assert!(text.contains("is this the right cluster?"), "{text}");
}

#[tokio::test]
async fn where_certificates_are_not_checked_no_authorities_are_asked_for() {
    for (url, unchecked) in [("https://127.0.0.1:1", true), ("http://127.0.0.1:1", false)] {
        let mut given = kube::Config::new(url.parse().unwrap());
        given.accept_invalid_certs = unchecked;
        let clients = Config::new(Source::Given(Box::new(given)));
        let clients = clients.build().await.unwrap();
        // Without a word about them they would be the system's.
        let authorities = clients.config().root_cert.clone();
        assert_eq!(authorities, Some(Vec::new()), "{url}");
    }
}

#[test]
fn refusals_are_explained() {
    let status = |code| {
        let status = kube::core::Status::failure("no", "Reason").with_code(code);
        explain(&kube::Error::Api(status.boxed()))
    };
    assert!(status(401).contains("expired?"));
    assert!(status(403).contains("RBAC"));
    assert_eq!(status(409), "no");
}
