//! What server and clients show each other.

use super::*;
use rustls::CertificateError;
use tower::service_fn;

fn tls(certificate: Certificate) -> Config {
    Config {
        tls: Some(Tls::new(certificate)),
        ..Config::loopback()
    }
}

#[tokio::test]
async fn both_protocols_with_a_given_certificate() {
    let authority = Authority::new();
    let bound = tls(authority.server().given()).bind().await.unwrap();
    let address = bound.local_addr();
    assert_ne!(address.port(), 0);
    let serving = bound.spawn(service_fn(describe));
    for (protocol, expect) in [
        (Protocol::Http1, "HTTP/1.1 0"),
        (Protocol::Http2, "HTTP/2.0 0"),
    ] {
        let client = connector(&authority.pem(), None, protocol);
        let (status, text) = get(&client, address, "/").await.unwrap();
        assert_eq!((status, text.as_str()), (200, expect));
    }
    let stranger = connector(&Authority::new().pem(), None, Protocol::Http1);
    get(&stranger, address, "/").await.unwrap_err();
    until(async || serving.counters().handshake_failures() == 1).await;
    assert_eq!(serving.drain(SOON).await, 0);
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn http2_can_be_left_out() {
    let authority = Authority::new();
    let mut config = tls(authority.server().given());
    config.tls.as_mut().unwrap().http2 = false;
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let client = connector(&authority.pem(), None, Protocol::Http2);
    get(&client, serving.local_addr(), "/").await.unwrap_err();
    let client = connector(&authority.pem(), None, Protocol::Http1);
    get(&client, serving.local_addr(), "/").await.unwrap();
}

#[tokio::test]
async fn changed_files_are_taken_and_half_a_pair_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let files = write(&old.server(), dir.path());
    let config = tls(Certificate::Files(files.clone()));
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let address = serving.local_addr();
    let known_to = async |authority: &Authority| {
        let client = connector(&authority.pem(), None, Protocol::Http1);
        get(&client, address, "/").await.is_ok()
    };
    assert!(known_to(&old).await);
    let next = new.server();
    std::fs::write(&files.cert, &next.cert).unwrap();
    until(async || serving.counters().reload_failures() > 0).await;
    assert!(known_to(&old).await, "the key does not fit yet");
    std::fs::write(&files.key, &next.key).unwrap();
    until(async || known_to(&new).await).await;
    assert!(!known_to(&old).await);
}

#[tokio::test]
async fn self_signed_is_kept_and_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let wish = SelfSigned::kept_in(dir.path().join("certs"));
    let mut shown = Vec::new();
    for _ in 0..2 {
        let config = tls(Certificate::SelfSigned(wish.clone()));
        let bound = config.bind().await.unwrap();
        shown.push(bound.certificate().unwrap().cert.clone());
        let serving = bound.spawn(service_fn(describe));
        let chain = std::fs::read_to_string(dir.path().join("certs/apiserver.crt")).unwrap();
        // The second of the chain is its authority.
        let second = chain.rfind("-----BEGIN").unwrap();
        let client = connector(&chain[second..], None, Protocol::Http2);
        get(&client, serving.local_addr(), "/").await.unwrap();
    }
    assert_eq!(shown[0], shown[1]);
    let key = std::fs::metadata(dir.path().join("certs/apiserver.key")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777,
        0o600
    );
    std::fs::write(dir.path().join("certs/apiserver.crt"), "rubbish").unwrap();
    let again = tls(Certificate::SelfSigned(wish)).bind().await.unwrap();
    assert_ne!(again.certificate().unwrap().cert, shown[0]);
}

#[tokio::test]
async fn self_signed_says_where_and_since_when() {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let wish = SelfSigned {
        ips: vec!["10.1.2.3".parse().unwrap()],
        ..SelfSigned::in_memory()
    };
    let bound = tls(Certificate::SelfSigned(wish)).bind().await.unwrap();
    let pair = bound.certificate().unwrap();
    let (_, leaf) = X509Certificate::from_der(&pair.cert[0]).unwrap();
    let name = leaf.subject().iter_common_name().next().unwrap();
    let (host, made) = name.as_str().unwrap().split_once('@').unwrap();
    assert_eq!(host, "localhost");
    let made: i64 = made.parse().unwrap();
    assert_eq!(leaf.validity().not_before.timestamp(), made - 3600);
    assert_eq!(
        leaf.validity().not_after.timestamp(),
        made + 365 * 24 * 3600
    );
    let names = leaf.subject_alternative_name().unwrap().unwrap().value;
    let names: Vec<String> = names
        .general_names
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(name) => (*name).to_owned(),
            GeneralName::IPAddress(bytes) => format!("{bytes:?}"),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(names, ["localhost", "[10, 1, 2, 3]", "[127, 0, 0, 1]"]);
}

/// Any certificate is let in; who it is from is judged by each request, with the authorities of the moment.
#[tokio::test]
async fn requested_certificates_are_judged_by_authorities_that_change() {
    let server = Authority::new();
    let (first, second) = (Authority::new(), Authority::new());
    let trust = CaBundle::from_pem(first.pem().as_bytes()).unwrap();
    let other = CaBundle::nobody();
    let mut config = tls(server.server().given());
    config.tls.as_mut().unwrap().clients = Clients::Requested(vec![trust.clone(), other.clone()]);
    let judged_by = trust.clone();
    let judge = service_fn(move |request: Request<Arriving>| {
        let peer = request.extensions().get::<Peer>().unwrap().clone();
        let verdict = match peer.verified_by(&judged_by) {
            Ok(()) => "known".to_owned(),
            Err(rustls::Error::NoCertificatesPresented) => "nobody".to_owned(),
            Err(error) => error.to_string(),
        };
        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(verdict)))) }
    });
    let serving = config.bind().await.unwrap().spawn(judge);
    let address = serving.local_addr();
    let ask = async |own: Option<&Pair>| {
        let client = connector(&server.pem(), own, Protocol::Http2);
        get(&client, address, "/").await.unwrap().1
    };
    let (of_first, of_second) = (first.client("client", "o"), second.client("client", "o"));
    assert_eq!(ask(None).await, "nobody");
    assert_eq!(ask(Some(&of_first)).await, "known");
    let unknown = rustls::Error::from(CertificateError::UnknownIssuer).to_string();
    assert_eq!(ask(Some(&of_second)).await, unknown);
    // A server's certificate is no client's.
    assert_ne!(ask(Some(&first.server())).await, "known");

    assert!(trust.replace(second.pem().as_bytes()).unwrap());
    assert!(!trust.replace(second.pem().as_bytes()).unwrap());
    assert_eq!(ask(Some(&of_first)).await, unknown);
    assert_eq!(ask(Some(&of_second)).await, "known");
    trust.replace(b"rubbish").unwrap_err();
    assert_eq!(ask(Some(&of_second)).await, "known");
    trust.clear();
    assert_eq!(ask(Some(&of_second)).await, unknown);
    assert!(trust.is_empty() && other.is_empty());
}

#[test]
fn a_verdict_is_about_one_content_of_one_set() {
    let (one, two) = (Authority::new(), Authority::new());
    let pair = one.client("client", "o");
    let leaf = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
    let peer = Peer::new("127.0.0.1:1".parse().unwrap(), &[leaf]);
    let of_one = CaBundle::from_pem(one.pem().as_bytes()).unwrap();
    let of_two = CaBundle::from_pem(two.pem().as_bytes()).unwrap();
    for _ in 0..2 {
        peer.verified_by(&of_one).unwrap();
        peer.verified_by(&of_two).unwrap_err();
    }
    of_one.replace(two.pem().as_bytes()).unwrap();
    peer.verified_by(&of_one).unwrap_err();
    of_one.replace(one.pem().as_bytes()).unwrap();
    peer.verified_by(&of_one).unwrap();
}

#[tokio::test]
async fn required_certificates_are_required() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let mut config = tls(authority.server().given());
    config.tls.as_mut().unwrap().clients = Clients::RequiredByFile(ca.clone());
    let serving = config.bind().await.unwrap().spawn(service_fn(describe));
    let address = serving.local_addr();
    let own = authority.client("client", "o");
    let known = connector(&authority.pem(), Some(&own), Protocol::Http1);
    assert_eq!(get(&known, address, "/").await.unwrap().1, "HTTP/1.1 1");
    let next = Authority::new();
    let foreign = next.client("client", "o");
    let foreign = connector(&authority.pem(), Some(&foreign), Protocol::Http1);
    let nothing = connector(&authority.pem(), None, Protocol::Http1);
    for client in [&nothing, &foreign] {
        get(client, address, "/").await.unwrap_err();
    }
    std::fs::write(&ca, next.pem()).unwrap();
    until(async || get(&foreign, address, "/").await.is_ok()).await;
    get(&known, address, "/").await.unwrap_err();
}

#[tokio::test]
async fn what_will_not_do_is_said_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = write(&authority.server(), dir.path());
    let error = |config: Config| async { config.bind().await.unwrap_err().to_string() };
    let missing = KeyPairFiles {
        key: dir.path().join("none"),
        ..files.clone()
    };
    let text = error(tls(Certificate::Files(missing))).await;
    assert_eq!(text, format!("read {}", dir.path().join("none").display()));
    std::fs::write(&files.key, authority.server().key).unwrap();
    let text = error(tls(Certificate::Files(files.clone()))).await;
    assert_eq!(text, format!("certificate {}", files.cert.display()));
    let taken = Config::loopback().bind().await.unwrap();
    let text = error(Config::new(taken.local_addr())).await;
    assert_eq!(text, format!("listen on {}", taken.local_addr()));
    let unwritable = SelfSigned::kept_in(files.cert.join("below a file"));
    let text = error(tls(Certificate::SelfSigned(unwritable))).await;
    assert!(text.contains("make the folder writable"), "{text}");
}
