//! What the original answered to the same requests, as far as that does not depend on the machine.

use super::*;

const PLAIN: &str = "text/plain; charset=utf-8";

#[track_caller]
fn refused(answer: &Answer, target: &str, status: u16, text: &str) {
    assert_eq!(answer.status, status, "{target}: {}", answer.body);
    assert_eq!(answer.body, format!("{text}\n"), "{target}");
    assert_eq!(answer.header("content-type"), PLAIN, "{target}");
    assert_eq!(
        answer.header("x-content-type-options"),
        "nosniff",
        "{target}"
    );
}

#[tokio::test]
async fn lists_of_what_there_is() {
    let rig = Rig::new();
    for (target, text) in [
        (
            "/api/",
            "Supported API versions: v1.0,v1.1,v1.2,v1.3,v2.0,v2.1",
        ),
        (
            "/api/v1.0",
            r#"Supported request types: "containers,machine""#,
        ),
        (
            "/api/v1.1/",
            r#"Supported request types: "containers,machine,subcontainers""#,
        ),
        (
            "/api/v1.2",
            r#"Supported request types: "containers,docker,machine,subcontainers""#,
        ),
        (
            "/api/v1.3/",
            r#"Supported request types: "containers,docker,events,machine,subcontainers""#,
        ),
        (
            "/api/v2.0",
            r#"Supported request types: "appmetrics,attributes,events,machine,ps,spec,stats,storage,summary,version""#,
        ),
        (
            "/api/v2.1/",
            r#"Supported request types: "appmetrics,attributes,events,machine,machinestats,ps,spec,stats,storage,summary,version""#,
        ),
    ] {
        refused(&rig.get(target).await, target, 400, text);
    }
}

#[tokio::test]
async fn refusals_word_by_word() {
    let rig = Rig::new();
    for (target, text) in [
        ("/api/v9/machine", r#"unsupported API version "v9""#),
        ("/api/V1.3", r#"unsupported API version "V1.3""#),
        ("/api/v1.3/nope/", r#"unknown request type "nope""#),
        ("/api/v1.3/podman", r#"unknown request type "podman""#),
        (
            "/api/v1.2/events?all_events=true",
            r#"unknown request type "events""#,
        ),
        (
            "/api/v1.0/subcontainers/",
            r#"unknown request type "subcontainers""#,
        ),
        (
            "/api/v2.0/machinestats",
            r#"unknown request type "machinestats""#,
        ),
        (
            "/api/v2.1/containers/",
            r#"unknown request type "containers""#,
        ),
        (
            "/api/v1.3/containers/nope",
            r#"failed to get container "/nope" with error: unknown container "/nope""#,
        ),
        (
            "/api/v1.3/containers/a%20b%22c",
            r#"failed to get container "/a b\"c" with error: unknown container "/a b\"c""#,
        ),
        (
            "/api/v1.3/containers/%00",
            r#"failed to get container "/\x00" with error: unknown container "/\x00""#,
        ),
        (
            "/api/v1.3/containers/%C3%A9",
            r#"failed to get container "/é" with error: unknown container "/é""#,
        ),
        (
            "/api/v1.3/subcontainers/nope",
            r#"failed to get subcontainers for container "/nope" with error: no containers found"#,
        ),
        (
            "/api/v1.3/docker/nope",
            r#"failed to get Docker container "nope" with error: unable to find container "nope" in "docker" namespace"#,
        ),
        (
            "/api/v1.3/docker/nope/x",
            "unknown request for Docker container [nope x]",
        ),
        ("/api/v2.0/spec/nope", r#"unknown container "/nope""#),
        (
            "/api/v2.0/spec/nope?recursive=true",
            r#"unknown container: "/nope""#,
        ),
        (
            "/api/v2.1/stats/nope?recursive=true",
            r#"unknown container: "/nope""#,
        ),
        (
            "/api/v2.0/ps/nope",
            r#"process listing failed: unknown container "/nope""#,
        ),
        (
            "/api/v2.0/ps/?type=docker&recursive=true",
            r#"process listing failed: unable to find container "" in "docker" namespace"#,
        ),
        ("/api/v2.0/appmetrics/nope", r#"unknown container "/nope""#),
        (
            "/api/v2.0/storage?label=nope",
            r#"non-existent label "nope""#,
        ),
        (
            "/api/v2.0/storage?uuid=nope&label=root",
            "cadvisor: no such device",
        ),
        (
            "/api/v2.0/stats/?type=docker",
            r#"unable to find container "" in "docker" namespace"#,
        ),
        (
            "/api/v2.0/stats/a/b?type=docker",
            r#"unable to find container "a/b" in "docker" namespace"#,
        ),
        (
            "/api/v2.0/stats/nope?type=docker&recursive=true",
            r#"invalid request for docker container "/nope" with subcontainers"#,
        ),
        (
            "/api/v2.1/machinestats?type=podman",
            r#"unable to find container "" in "podman" namespace"#,
        ),
        (
            "/api/v2.0/machine?type=bogus&count=abc",
            r#"unknown 'type' "bogus""#,
        ),
        ("/api/v2.0/nope?type=bogus", r#"unknown 'type' "bogus""#),
        ("/api/v2.0/nope?count=1", r#"unknown request type "nope""#),
        (
            "/api/v2.0/version?count=abc",
            "failed to parse 'count' option: abc",
        ),
        (
            "/metrics?max_age=5",
            "No metrics gathered, last error:\n\nfailed to parse 'max_age' option: time: missing unit in duration \"5\"",
        ),
        (
            "/api/v1.3/events?stream=true&start_time=2020-01-01T00:00:00Z",
            "for a call to watch, request.StartTime and request.EndTime must be uninitialized",
        ),
        ("/docker/", "failed to get docker info: failed to connect"),
    ] {
        refused(&rig.get(target).await, target, 500, text);
    }
    for (target, text) in [
        (
            "/containers/nope",
            r#"failed to get container "/nope" with error: unknown container "/nope""#,
        ),
        (
            "/containers/kubepods/",
            r#"failed to get container "/kubepods/" with error: unknown container "/kubepods/""#,
        ),
        (
            "/docker/a/b",
            r#"failed to get container "/a/b" with error: unable to find container "a/b" in "docker" namespace"#,
        ),
        (
            "/podman/nope",
            r#"failed to get container /nope with error: unable to find container "nope" in "podman" namespace"#,
        ),
        (
            "/static/nope.js",
            r#"unknown static resource "/static/nope.js""#,
        ),
    ] {
        refused(&rig.get(target).await, target, 404, text);
    }
}

#[tokio::test]
async fn what_kills_the_original() {
    let rig = Rig::new();
    let target = format!("/api/v1.3/containers{POD}");
    let answer = rig.ask("POST", &target, r#"{"num_stats":-2}"#).await;
    refused(
        &answer,
        &target,
        500,
        "invalid 'num_stats': only -1 and larger values allowed, not -2",
    );
    for (target, text) in [
        (
            "/api/v2.1/machinestats?type=docker&recursive=true",
            "invalid request for machine stats of docker containers",
        ),
        (
            "/api/v1.3/events?all_events=true&max_events=-2",
            "invalid 'max_events' option: only -1 and larger values allowed, not -2",
        ),
        ("/api/%zz", "400 Bad Request: malformed path"),
    ] {
        refused(&rig.get(target).await, target, 400, text);
    }
}

#[tokio::test]
async fn redirects() {
    let rig = Rig::new();
    let answer = rig.get("/").await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, "/containers/")
    );
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(answer.header("content-length"), "48");
    assert_eq!(
        answer.body,
        "<a href=\"/containers/\">Temporary Redirect</a>.\n\n"
    );
    let answer = rig.get("/api?x=1").await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, "/api/?x=1")
    );
    assert_eq!(
        answer.body,
        "<a href=\"/api/?x=1\">Temporary Redirect</a>.\n\n"
    );
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO"] {
        let answer = rig.ask(method, "/api", "").await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (307, "/api/"),
            "{method}"
        );
        assert_eq!(
            (
                answer.header("content-type"),
                answer.header("content-length")
            ),
            ("", "0")
        );
    }
    // These the original makes itself, the others its server.
    for page in ["/containers", "/docker", "/podman"] {
        let answer = rig.get(page).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (301, format!("{page}/").as_str())
        );
    }
    let answer = rig.ask("HEAD", "/", "").await;
    assert_eq!((answer.status, answer.header("content-length")), (307, ""));
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
}

#[tokio::test]
async fn no_method_is_refused() {
    let rig = Rig::new();
    for method in [
        "GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO",
    ] {
        for (target, status) in [
            ("/healthz", 200),
            ("/api/", 400),
            ("/api/v9/machine", 500),
            ("/api/v1.3/machine", 200),
            ("/validate/x", 200),
            ("/metrics", 200),
            ("/containers/", 200),
        ] {
            assert_eq!(
                rig.ask(method, target, "").await.status,
                status,
                "{method} {target}"
            );
        }
    }
    assert_eq!(rig.get("/healthz").await.body, "ok");
    for (method, target, status, text) in [
        ("DELETE", "/stats/summary", 405, "405: Method Not Allowed"),
        ("HEAD", "/stats/summary", 405, "405: Method Not Allowed"),
        ("GET", "/stats/foo", 404, "404: Page Not Found"),
    ] {
        let answer = rig.ask(method, target, "").await;
        assert_eq!((answer.status, answer.body.as_str()), (status, text));
        assert_eq!(answer.header("x-content-type-options"), "");
    }
    let odd = rig.get("/metrics/cadvisor?type=foo&count=x").await;
    assert_eq!(odd.status, 200, "the kubelet's page knows no options");
}

#[tokio::test]
async fn what_a_path_may_have_at_its_end() {
    let rig = Rig::new();
    for target in [
        "/api/v1.0/machine/x",
        "/api/v2.0/machine/",
        "/api/v2.0/version/x",
        "/api/v2.1/attributes/x",
        "/api/v2.0/storage/x",
        "/api/v2.1/machinestats/x",
        "/api/v1.3/containers",
        "/api/v1.3/containers/kubepods/",
        "/api/v1.3/containers/%6bubepods",
        "/api/v2.0/stats/kubepods/",
        "/api/v2.0/ps/kubepods",
        "/api/v1.3/docker",
        "/api/v2.0/events",
    ] {
        rig.json(target).await;
    }
    assert_eq!(rig.json("/api/v2.0/version").await, "v0.60.6");
    assert_eq!(rig.get("/api/v1.3/docker/").await.body, "{}");
    assert_eq!(rig.get("/api/v2.0/appmetrics/").await.body, r#"{"/":{}}"#);
    assert_eq!(
        rig.get("/api/v2.0/appmetrics/?type=docker&recursive=true")
            .await
            .body,
        "{}"
    );
}

#[tokio::test]
async fn how_many_samples() {
    let rig = Rig::new();
    let target = format!("/api/v1.3/containers{POD}/{ID}");
    for (body, expected) in [
        ("", Some(60)),
        ("{}", Some(60)),
        (r#"{"num_stats":2}"#, Some(2)),
        (r#"{"num_stats":-1}"#, Some(90)),
        (r#"{"num_stats":0}"#, None),
        (
            r#"{"num_stats":-1,"start":"2026-11-15T21:27:30Z"}"#,
            Some(40),
        ),
        (
            r#"{"start":"2020-01-01T00:00:00Z","end":"2020-01-02T00:00:00Z"}"#,
            None,
        ),
    ] {
        for method in ["GET", "POST"] {
            let answer = rig.ask(method, &target, body).await;
            let info: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            let found = info["stats"].as_array().map(Vec::len);
            assert_eq!(found, expected, "{method} {body}");
        }
    }
    for (query, v20, v21) in [
        ("", 64, Some(64)),
        ("?count=2", 2, Some(2)),
        ("?count=-1", 90, Some(90)),
        ("?count=0", 0, None),
    ] {
        let name = format!("{POD}/{ID}");
        let stats = rig.json(&format!("/api/v2.0/stats{name}{query}")).await;
        assert_eq!(stats[&name].as_array().unwrap().len(), v20, "{query}");
        let stats = rig.json(&format!("/api/v2.1/stats{name}{query}")).await;
        assert_eq!(
            stats[&name]["stats"].as_array().map(Vec::len),
            v21,
            "{query}"
        );
    }
    assert_eq!(rig.get("/api/v2.1/machinestats?count=0").await.body, "null");
}

#[tokio::test]
async fn which_containers() {
    let rig = Rig::new();
    let names = |value: serde_json::Value| -> Vec<String> {
        let list = value.as_array().unwrap().iter();
        list.map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = names(rig.json("/api/v1.3/subcontainers/kube").await);
    assert_eq!(
        all,
        [
            "/kubepods",
            "/kubepods/burstable",
            POD,
            &format!("{POD}/{ID}")
        ]
    );
    assert_eq!(names(rig.json("/api/v1.1/subcontainers").await).len(), 6);
    let root = rig.json("/api/v1.3/containers/").await;
    assert_eq!(
        root["subcontainers"],
        serde_json::json!([{"name": "/kubepods"}, {"name": "/system"}])
    );
    let stats = rig.json("/api/v2.1/stats/?recursive=true&count=0").await;
    assert!(stats.get("/").is_none() && stats.get("/kubepods").is_some());
    let fresh = rig
        .json("/api/v2.0/stats/kubepods?recursive=true&count=0&max_age=0s")
        .await;
    assert_eq!(fresh.as_object().unwrap().len(), 4);
    rig.machine
        .add("/docker/1", Some(identity(Namespace::Docker, "web", "abc")));
    let found = rig.json("/api/v1.2/docker/we").await;
    assert_eq!(
        found["/docker/1"]["aliases"],
        serde_json::json!(["web", "abc"])
    );
    rig.json("/api/v2.0/summary/web?type=docker").await;
}

#[tokio::test]
async fn events_of_the_past() {
    let rig = Rig::new();
    for number in 0..12 {
        rig.machine
            .event(&format!("/a/{number}"), Detail::ContainerCreation);
    }
    rig.machine
        .event("/a/1", Detail::ContainerDeletion { exit_code: 3 });
    for (query, expected) in [
        ("?all_events=true", 0),
        ("?all_events=true&subcontainers=true", 10),
        ("?all_events=true&subcontainers=true&max_events=2", 2),
        ("?all_events=true&subcontainers=true&max_events=0", 0),
        ("?all_events=true&subcontainers=true&max_events=-1", 13),
        ("?all_events=true&subcontainers=true&max_events=bad", 10),
        ("?deletion_events=1&subcontainers=T", 1),
        ("?deletion_events=yes&subcontainers=true", 0),
        ("/a?all_events=TRUE&subcontainers=true", 10),
        ("/a/1?all_events=true", 2),
        ("/a/1/?all_events=true", 2),
        (
            "/a/?creation_events=true&subcontainers=true&start_time=2099-01-01T00:00:00Z",
            0,
        ),
        ("/a/1?deletion_events=true&start_time=bad", 1),
        ("", 0),
    ] {
        for version in ["v1.3", "v2.0", "v2.1"] {
            let found = rig.json(&format!("/api/{version}/events{query}")).await;
            assert_eq!(
                found.as_array().unwrap().len(),
                expected,
                "{version} {query}"
            );
        }
    }
}

#[tokio::test]
async fn messages_for_those_who_ask() {
    let rig = Rig::new();
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3";
    for page in ["/metrics", "/metrics/cadvisor"] {
        let answer = rig.ask_with("GET", page, "", &[("accept", accept)]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("content-type"),
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=allow-utf-8"
        );
        // A length of three bytes, then the family's name.
        assert_eq!(answer.bytes[3..6], [10, 1, b'x'], "{page}");
    }
}

#[tokio::test]
async fn pages_of_metrics() {
    let rig = Rig::new();
    let plain = rig.get("/metrics?type=docker").await;
    assert!(plain.body.starts_with("# Cadvisor Some(Docker)\n"));
    assert_eq!(
        plain.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
    );
    let page = rig.get("/metrics/cadvisor").await;
    assert!(page.body.starts_with("# Kubelet None\n"));
    let zipped = rig
        .ask_with("GET", "/metrics", "", &[("accept-encoding", "zstd, gzip")])
        .await;
    assert_eq!(zipped.header("content-encoding"), "gzip");
    let mut text = String::new();
    std::io::Read::read_to_string(
        &mut flate2::read::GzDecoder::new(&zipped.bytes[..]),
        &mut text,
    )
    .unwrap();
    assert!(text.ends_with("x 1\n") && text.len() > 10 * zipped.bytes.len());
    let own = rig.get("/metrics/self").await.body;
    assert!(own.starts_with("own 1\n"));
    assert!(own.contains("plimsoll_http_requests_total{code=\"200\",handler=\"metrics\"} 3\n"));
    assert!(own.contains("plimsoll_http_requests_in_flight 1\n"));
    let resource = rig.get("/metrics/resource").await.body;
    assert!(resource.contains("resource_scrape_error 0\n"));
    assert!(resource.contains(
        "container_cpu_usage_seconds_total{container=\"main\",namespace=\"default\",pod=\"limited\"} 22.25 1794778089000\n"
    ), "{resource}");
}

#[tokio::test]
async fn the_rest_of_the_surface() {
    let mut machine = Machine::new();
    machine.ready = Err("no round yet".to_owned());
    let rig = Rig::with(
        machine,
        Mounts::default(),
        Auth::default(),
        Limits::default(),
    );
    refused(&rig.get("/readyz").await, "/readyz", 503, "no round yet");
    assert_eq!(Rig::new().get("/readyz").await.body, "ok");
    let told = Rig::new().get("/readyz?verbose").await;
    assert_eq!(
        (told.status, told.body.as_str()),
        (200, "ok\nreporting: no\n")
    );
    let text = Rig::new().get("/extra-text?size=3").await;
    assert_eq!(text.body, "Some(\"3\") false");
    assert_eq!(text.headers["next-page-token"], "t1");
    assert_eq!(
        rig.get("/debug/sources?container=/").await.body,
        "/proc/stat\n/proc/meminfo\n"
    );
    assert_eq!(rig.get("/debug/sources?container=/nope").await.status, 404);
    assert!(
        rig.get("/debug/plan")
            .await
            .body
            .starts_with("all        every 1s\n")
    );
    assert_eq!(rig.get("/validate/").await.body, "all is well\n");
    for method in ["GET", "POST"] {
        let answer = rig
            .ask(method, "/stats/summary?only_cpu_and_memory=true", "")
            .await;
        let summary: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(summary["node"]["nodeName"], "node-1");
        assert_eq!(
            summary["pods"][0]["containers"][0]["cpu"]["usageNanoCores"],
            250_000_000
        );
    }
}

#[tokio::test]
async fn pages_for_people() {
    let rig = Rig::new();
    let page = rig.get(&format!("/containers{POD}/{ID}")).await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, "text/html; charset=utf-8")
    );
    assert!(
        page.body.contains("0.250 cores") && page.body.contains("1.0 MiB"),
        "{}",
        page.body
    );
    assert!(
        page.body
            .contains(&format!("<a href=\"../../../../containers{POD}\">"))
    );
    assert!(!page.body.contains("<script"));
    let root = rig.get("/containers/").await.body;
    assert!(root.contains("<a href=\"../containers/kubepods\">/kubepods</a>"));
    let podman = rig.get("/podman/").await.body;
    assert!(podman.contains("&lt;5&gt;"));
}

#[tokio::test]
async fn a_defect_is_an_answer_too() {
    let rig = Rig::new();
    let answer = rig.get("/debug/sources?container=/panic").await;
    refused(
        &answer,
        "/debug/sources",
        500,
        "internal error, see the log",
    );
    assert_eq!(rig.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let limits = Limits {
        body_bytes: 100,
        ..Limits::default()
    };
    let rig = Rig::with(Machine::new(), Mounts::default(), Auth::default(), limits);
    let body = "x".repeat(101);
    let answer = rig.ask("POST", "/api/v1.3/containers/", &body).await;
    refused(
        &answer,
        "/api/v1.3/containers/",
        413,
        "the request is too large",
    );
    // Nobody reads this one, so its size does not matter.
    assert_eq!(
        rig.ask("POST", "/api/v2.0/version", &body).await.status,
        200
    );
}

#[tokio::test]
async fn below_a_prefix() {
    let rig = Rig::with(
        Machine::new(),
        Mounts::new("/pre", "/m"),
        Auth::default(),
        Limits::default(),
    );
    refused(
        &rig.get("/metrics").await,
        "/metrics",
        404,
        "404 page not found",
    );
    assert_eq!(rig.get("/pre/m").await.status, 200);
    assert_eq!(rig.get("/pre/healthz").await.body, "ok");
    rig.json("/pre/api/v1.3/machine").await;
    assert_eq!(
        rig.get("/pre/").await.header("location"),
        "/pre/containers/"
    );
}
