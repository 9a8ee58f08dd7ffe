//! The server from socket to socket, with an API server that answers, is silent or is away.

mod beyond;
mod way;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Method;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use self::way::State;
use self::world::{World, until, write};

const MASTERS: &str = "system:masters";
const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
const PODS: &str = "/apis/metrics.k8s.io/v1beta1/pods";
const TOO_LATE: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete \
     within the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";

#[tokio::test(flavor = "multi_thread")]
async fn answers_tell_their_length_and_heads_are_all_there_is() {
    let world = World::new(|_| {}).await;
    for http2 in [false, true] {
        let client = world.client("root", MASTERS, http2);
        for path in [
            NODES,
            "/healthz",
            "/metrics",
            "/version",
            "/nothing",
            "/openapi/v2",
        ] {
            let reply = client.get(path).await;
            let told = reply.headers.get("content-length");
            let told: usize = told.unwrap().to_str().unwrap().parse().unwrap();
            assert_eq!(told, reply.body.len(), "{path}");
            let head = client.ask(Method::HEAD, path).await.unwrap();
            assert_eq!(head.body, "", "{path} {http2}");
            let expected = match path {
                NODES | "/version" => 405,
                _ => reply.status,
            };
            assert_eq!(head.status, expected, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_too_long_is_told_so() {
    let world = World::new(|config| config.request_timeout = Duration::from_secs(2)).await;
    let (root, bob) = (
        world.client("root", MASTERS, true),
        world.client("bob", "dev", true),
    );
    // Time that has passed already is no time at all, whoever asks.
    for path in [NODES, "/healthz", "/version", "/metrics"] {
        let reply = root.get(&format!("{path}?timeout=1ns")).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (504, TOO_LATE),
            "{path}"
        );
        assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(reply.headers["cache-control"], "no-cache, private");
        assert!(reply.headers.contains_key("audit-id"));
    }
    for (timeout, status) in [("0s", 200), ("-1s", 200), ("5h", 200), ("x", 400)] {
        let reply = root.get(&format!("{NODES}?timeout={timeout}")).await;
        assert_eq!(reply.status, status, "{timeout}");
    }
    // The API server does not say whether bob may.
    world.way.becomes(State::Silent);
    for (query, least) in [("?timeout=300ms", 0.3), ("", 2.0), ("?timeout=1h", 2.0)] {
        let began = std::time::Instant::now();
        let reply = bob.get(&format!("{NODES}{query}")).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (504, TOO_LATE),
            "{query}"
        );
        let took = began.elapsed().as_secs_f64();
        // Not before its time; how much later is the machine's business.
        assert!(took >= least, "{query}: {took}");
    }
    assert_eq!(root.get(NODES).await.status, 200);
}

/// Everybody may look around below `/apis`. What is allowed is judged by the path that is answered, however its slashes
/// are written.
#[tokio::test(flavor = "multi_thread")]
async fn figures_are_not_to_be_had_by_another_spelling() {
    let world = World::new(|_| {}).await;
    let bob = world.client("bob", "dev", false);
    assert_eq!(bob.get("/apis/metrics.k8s.io").await.status, 200);
    for path in [
        NODES,
        "/apis/metrics.k8s.io%2Fv1beta1%2Fnodes",
        "/apis/metrics.k8s.io/v1beta1%2Fnodes",
        "/apis/metrics.k8s.io%2Fv1beta1%2Fnamespaces%2Fdefault%2Fpods",
        "/apis/metrics.k8s.io/v1beta1/nodes//",
        "/apis/%6Detrics.k8s.io/v1beta1/%70ods",
    ] {
        let reply = bob.get(path).await;
        assert_eq!(reply.status, 403, "{path}: {}", reply.body);
    }
    // Who may, may so as well.
    let root = world.client("root", MASTERS, false);
    let reply = root.get("/apis/metrics.k8s.io%2Fv1beta1%2Fnodes").await;
    assert_eq!(reply.status, 200);
}

/// Requests are counted where they are answered, as the original does: whoever is refused before did not get there.
#[tokio::test(flavor = "multi_thread")]
async fn what_reached_nothing_is_not_counted() {
    let world = World::new(|_| {}).await;
    let (bob, root) = (
        world.client("bob", "dev", false),
        world.client("root", MASTERS, false),
    );
    assert_eq!(bob.get(NODES).await.status, 403);
    let posted = root.ask(Method::POST, NODES).await.unwrap();
    assert_eq!(posted.status, 405);
    for path in ["/apis", "/healthz/ping", "/healthz", NODES] {
        assert_eq!(root.get(path).await.status, 200, "{path}");
    }
    let page = root.get("/metrics").await.body;
    let mut counted: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter_map(|line| Some(line.split_once(",resource=")?.1))
        .collect();
    counted.sort();
    let expected = [
        "\"\",scope=\"\",subresource=\"/healthz\",verb=\"GET\",version=\"\"} 1",
        "\"nodes\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1beta1\"} 1",
    ];
    assert_eq!(counted, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_target_is_nobodys() {
    let world = World::new(|_| {}).await;
    let root = world.client("root", MASTERS, false);
    let reply = root.get("/apis/metrics.k8s.io/%zz").await;
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (400, "400 Bad Request")
    );
    assert!(!reply.headers.contains_key("audit-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_at_once_than_there_is_room_for() {
    let world = World::new(|config| config.max_in_flight = (2, 1)).await;
    world.way.becomes(State::Silent);
    let bob = world.client("bob", "dev", false);
    // Two of three wait for the API server's word, and take all the room.
    let mut asking: FuturesUnordered<_> = (0..3)
        .map(|number| {
            let bob = bob.clone();
            async move {
                bob.get(&format!("{NODES}?labelSelector=n%3D{number}"))
                    .await
            }
        })
        .collect();
    let reply = asking.next().await.unwrap();
    assert_eq!(reply.status, 429);
    assert_eq!(reply.body, "Too many requests, please try again later.\n");
    assert_eq!(reply.headers["retry-after"], "1");
    assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8");
    // Somebody must be able to look what is wrong.
    let root = world.client("root", MASTERS, false);
    assert_eq!(root.get(NODES).await.status, 200);
    // Others than readers have room of their own.
    let write = bob
        .ask(Method::POST, &format!("{NODES}?timeout=100ms"))
        .await;
    assert_eq!(write.unwrap().status, 504);
    world.way.becomes(State::Open);
    while let Some(reply) = asking.next().await {
        assert_eq!(reply.status, 403);
    }
    until("there is room again", async || {
        bob.get(NODES).await.status == 403
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_change_and_no_request_is_lost() {
    let world = World::new(|_| {}).await;
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut load = Vec::new();
    for number in 0..8 {
        let client = world.client("root", MASTERS, number % 2 == 0);
        let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
        let keeps_alive = number % 4 < 2;
        load.push(tokio::spawn(async move {
            let mut kept = client.open().await.unwrap();
            while !stop.load(Ordering::Relaxed) {
                if !keeps_alive {
                    kept = client.open().await.unwrap();
                }
                let reply = kept.ask(Method::GET, NODES).await.unwrap();
                assert_eq!(reply.status, 200);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let watcher = world.client("root", MASTERS, false);
    let mut shown = watcher.get("/healthz").await.certificate;
    for _ in 0..5 {
        let before = answered.load(Ordering::Relaxed);
        write(&world.authority.issue("server", "o"), &world.files);
        until("the next certificate is shown", async || {
            let now = watcher.get("/healthz").await.certificate;
            let changed = now != shown;
            shown = now;
            changed
        })
        .await;
        until("requests go on", async || {
            answered.load(Ordering::Relaxed) > before + 50
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for one in load {
        one.await.unwrap();
    }
}

/// A kubelet of pods `a` and `b` that counts how often it was asked.
async fn kubelet() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut request = Vec::new();
                while let Ok(1..) = stream.read_buf(&mut request).await {
                    if !request.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    request.clear();
                    count.fetch_add(1, Ordering::Relaxed);
                    let page = page();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
                    if stream.write_all((head + &page).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

fn page() -> String {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let (cpu, stamp) = (now.as_secs_f64() / 4.0, now.as_millis());
    let series = ["a", "b"].map(|pod| {
        let whose = format!("{{container=\"main\",namespace=\"default\",pod=\"{pod}\"}}");
        format!(
            "container_cpu_usage_seconds_total{whose} {cpu} {stamp}\n\
             container_memory_working_set_bytes{whose} 2048 {stamp}\n\
             container_swap_usage_bytes{whose} 1024 {stamp}\n"
        )
    });
    let node = format!(
        "node_cpu_usage_seconds_total {cpu} {stamp}\nnode_memory_working_set_bytes 4096 {stamp}\n\
         node_swap_usage_bytes 3072 {stamp}\n"
    );
    series.concat() + &node
}

/// Names and times.
fn items(text: &str) -> Vec<(String, String)> {
    let list: Value = serde_json::from_str(text).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items
        .map(|item| (text(&item["metadata"]["name"]), text(&item["timestamp"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_go_on_while_the_api_server_is_away() {
    let world = World::new(|_| {}).await;
    let (kubelet, asked) = kubelet().await;
    world.join(kubelet).await;
    world.run("a").await;
    let root = world.client("root", MASTERS, true);
    until("figures", async || {
        items(&root.get(PODS).await.body).len() == 1 && root.get("/readyz").await.status == 200
    })
    .await;

    for state in [State::Cut, State::Silent] {
        world.way.becomes(state);
        let before = (
            items(&root.get(NODES).await.body),
            asked.load(Ordering::Relaxed),
        );
        until("scrapes go on", async || {
            asked.load(Ordering::Relaxed) >= before.1 + 4
        })
        .await;
        // What is there is complete and fresh, and neither probe wants a restart.
        until("times go on", async || {
            let now = items(&root.get(NODES).await.body);
            now.len() == 1 && now[0].1 > before.0[0].1
        })
        .await;
        assert_eq!(items(&root.get(PODS).await.body).len(), 1);
        for probe in ["/readyz", "/livez", "/healthz"] {
            // A round may be late on a busy machine, but none is missing.
            until(&format!("{probe} {state:?}"), async || {
                root.get(probe).await.status == 200
            })
            .await;
        }
        // Nobody is let in on nobody's word.
        let bob = world.client("bob", "dev", true);
        let reply = bob.get(&format!("{NODES}?timeout=2s")).await;
        assert!(matches!(reply.status, 500 | 504), "{}", reply.status);
        if reply.status == 500 {
            let expected = format!("Internal Server Error: \"{NODES}?timeout=2s\": ");
            assert!(reply.body.starts_with(&expected), "{}", reply.body);
        }
        world.way.becomes(State::Open);
    }
    // What happened meanwhile is heard of.
    world.way.becomes(State::Cut);
    // Straight to the API server, whatever becomes of the way.
    world.run("b").await;
    assert_eq!(items(&root.get(PODS).await.body).len(), 1);
    world.way.becomes(State::Open);
    until("the new pod", async || {
        items(&root.get(PODS).await.body).len() == 2
    })
    .await;
    let bob = world.client("bob", "dev", true);
    until("bob is refused for what he is", async || {
        bob.get(NODES).await.status == 403
    })
    .await;
}
