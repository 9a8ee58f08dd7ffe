//! Clients against a real server of our own, with certificates that change.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use parking_lot::Mutex;
use tower::service_fn;

use crate::Arriving;
use crate::pki::Authority;
use crate::{Peer, Serving, Tls};
use plimsoll_client::*;

const SOON: Duration = Duration::from_secs(60);

type Seen = Arc<Mutex<Vec<String>>>;

/// Tells who asked, by certificate and user agent, and how.
async fn server(authority: &Authority) -> (Serving, Seen) {
    let mut tls = Tls::new(authority.server().given());
    tls.clients = crate::Clients::Requested(vec![authority.trust()]);
    let config = crate::Config {
        tls: Some(tls),
        ..crate::Config::loopback()
    };
    let seen = Seen::default();
    let told = Arc::clone(&seen);
    let serving =
        config
            .bind()
            .await
            .unwrap()
            .spawn(service_fn(move |request: Request<Arriving>| {
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
    let (_stopper, shutdown) = plimsoll_client::shutdown::channel();
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
    std::fs::write(dir.path().join("empty"), "").unwrap();
    let empty = Source::Kubeconfig {
        path: dir.path().join("empty"),
        context: None,
    };
    let text = error(empty).await;
    assert!(
        text.contains("is empty or has no contexts; give one"),
        "{text}"
    );
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
    assert!(
        text.contains("is it running, and is this its address?"),
        "{text}"
    );
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

/// Whatever was handed to a connection before: not a byte goes out without a permit.
#[tokio::test]
async fn a_closed_fence_lets_nothing_out() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (serving, seen) = server(&authority).await;
    let address = format!("https://{}", serving.local_addr());
    write_kubeconfig(dir.path(), &address, &authority);
    write_client(dir.path(), &authority, "client");
    let clients = Config::from_flag(Some(dir.path().join("kubeconfig")));
    let clients = clients.build().await.unwrap();
    let open = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&open);
    let permit: Permit = Arc::new(move || match asked.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err("the fence is closed".into()),
    });
    let client = fenced_client(&clients.config(), SOON, permit).unwrap();
    let ask = async || {
        let request = Request::get("/version").header("user-agent", "fenced");
        let request = request.body(kube::client::Body::empty()).unwrap();
        client.send(request).await
    };
    ask().await.unwrap();
    // By the certificate in the kubeconfig, and to its address.
    assert_eq!(*seen.lock(), ["client fenced"]);
    open.store(false, Ordering::SeqCst);
    // On the connection that is there, and on a new one.
    for _ in 0..2 {
        let refused = ask().await.unwrap_err();
        assert!(
            chain(&refused).contains("the fence is closed"),
            "{refused:?}"
        );
    }
    assert_eq!(seen.lock().len(), 1);
}

/// What is said about an answer of the API server. `None`: no more than it says itself.
#[test]
fn refusals_are_explained() {
    let rbac = "pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
    let going = "configmaps \"c\" is forbidden: unable to create new content in namespace n because it is being terminated";
    for (code, kind, message, advice) in [
        (
            401,
            None,
            "the API server at x does not accept y (401 Unauthorized)",
            Some("has the token or certificate expired"),
        ),
        (
            403,
            Some("pods"),
            rbac,
            Some("grant it by RBAC to the user named here"),
        ),
        (403, Some("configmaps"), going, Some("it is being deleted")),
        (
            405,
            Some("x"),
            "create not allowed while custom resource definition is terminating",
            Some("it is being deleted"),
        ),
        (
            403,
            Some("pods"),
            "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1",
            Some("raise the quota"),
        ),
        (
            403,
            Some("pods"),
            "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'p' denied request",
            Some("a policy of the cluster"),
        ),
        (
            404,
            None,
            "404 page not found\n",
            Some("is its CustomResourceDefinition installed?"),
        ),
        (
            404,
            Some("namespaces"),
            "namespaces \"n\" not found",
            Some("create the namespace, or name another one"),
        ),
        (
            404,
            Some("nodes"),
            "nodes \"n\" not found",
            Some("has the node registered?"),
        ),
        (404, Some("pods"), "pods \"p\" not found", None),
        (409, Some("pods"), "pods \"p\" already exists", None),
        (
            410,
            None,
            "too old resource version: 1 (2)",
            Some("everything is read anew"),
        ),
        (
            422,
            Some("pods"),
            "Pod \"p\" is invalid",
            Some("of another version"),
        ),
        (429, None, "too many requests", Some("asked again later")),
        (
            500,
            None,
            "etcdserver: leader changed",
            Some("asked again later"),
        ),
        (503, None, "apiserver not ready", Some("asked again later")),
        (
            400,
            None,
            "Client sent an HTTP request to an HTTPS server.",
            Some("write https://"),
        ),
    ] {
        let status = serde_json::json!({"message": message, "reason": "Reason", "code": code,
            "details": kind.map(|kind| serde_json::json!({"kind": kind}))});
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        let text = explain(&kube::Error::Api(status.boxed()));
        let said = message.trim().trim_end_matches('.');
        match advice {
            Some(advice) => {
                let expected = format!("{said}; ");
                assert!(
                    text.starts_with(&expected) && text.contains(advice),
                    "{text}"
                );
            }
            None => assert_eq!(text, said),
        }
        let rights = text.contains("RBAC");
        assert_eq!(rights, message == rbac, "{text}");
    }
}

/// What is said where there is no answer.
#[tokio::test]
async fn what_is_in_the_way_is_explained() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};
    let listener = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Bound for as long as this lasts, so that nobody else listens there.
    let bound = TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = bound.local_addr().unwrap();
    let silent = listener().await;
    let hangs_up = listener().await;
    let gibberish = listener().await;
    let unauthorized = listener().await;
    let addresses =
        [&silent, &hangs_up, &gibberish, &unauthorized].map(|one| one.local_addr().unwrap());
    let [of_silent, of_hanging, of_gibberish, of_401] = addresses;
    let answering = async |listener: TcpListener, answer: &'static str| {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    };
    tokio::spawn(answering(hangs_up, ""));
    tokio::spawn(answering(
        gibberish,
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
    ));
    tokio::spawn(answering(
        unauthorized,
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: 12\r\n\r\nUnauthorized",
    ));
    // Only who never answers is worth a short wait.
    let ask = async |address: String| {
        let within = match address.ends_with(&of_silent.port().to_string()) {
            true => Duration::from_millis(500),
            false => Duration::from_secs(60),
        };
        let mut config = Config::new(Source::Given(Box::new(kube::Config::new(
            address.parse().unwrap(),
        ))));
        config.timeout = within;
        let client = config.build().await.unwrap().client();
        explain(&client.apiserver_version().await.unwrap_err())
    };
    for (address, expected) in [
        (
            format!("http://{free}"),
            format!(
                "the API server at http://{free} refuses connections; is it running, and is this its address?"
            ),
        ),
        (
            format!("http://{of_silent}"),
            format!(
                "the API server at http://{of_silent} does not answer in time; is it overloaded or stopped, or does a firewall or network policy keep it from us?"
            ),
        ),
        (
            format!("http://{of_hanging}"),
            format!(
                "the API server at http://{of_hanging} broke the connection; was it restarted? it is asked again"
            ),
        ),
        (
            format!("https://{of_gibberish}"),
            format!(
                "the API server at https://{of_gibberish} speaks no TLS; is this its address and port, and should it be http:// there?"
            ),
        ),
        (
            format!("http://{of_401}"),
            format!(
                "the API server at http://{of_401} does not accept the credentials of this process (401 Unauthorized); has the token or certificate expired, or is it of another cluster? give a new one"
            ),
        ),
    ] {
        assert_eq!(ask(address).await, expected);
    }
    let text = ask(format!("http://{of_gibberish}")).await;
    assert!(text.starts_with("the answer makes no sense ("), "{text}");
    let text = ask("http://no-such-host.invalid".to_owned()).await;
    // The last is what a machine without a name server says.
    let expected = [
        "has a name that is unknown here",
        "cannot be asked",
        "does not answer in time",
    ];
    assert!(expected.iter().any(|one| text.contains(one)), "{text}");
    drop(silent);
}
