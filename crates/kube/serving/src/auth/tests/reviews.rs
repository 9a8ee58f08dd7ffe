//! Questions to the API server, and the gate that asks them.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::{Value, json};

use super::*;
use crate::fake;
use crate::fake::Asked;

fn token_answer(asked: &Asked) -> (u16, Value) {
    let mut review = asked.body.clone();
    review["status"] = match asked.body["spec"]["token"].as_str().unwrap() {
        "good" => json!({"authenticated": true, "user": {"username": "jane", "uid": "7",
            "groups": ["devs"], "extra": {"scopes": ["a"]}}}),
        "foreign" => json!({"authenticated": true, "user": {"username": "jane"},
            "audiences": ["elsewhere"]}),
        _ => json!({"error": "[invalid bearer token]"}),
    };
    (201, review)
}

#[tokio::test(start_paused = true)]
async fn token_reviews_are_remembered_either_way() {
    let (client, log) = fake::client(token_answer);
    let reviewer = TokenReviewer::new(client, Vec::new(), TEN);
    for _ in 0..3 {
        let jane = reviewer.user("good").await.unwrap().unwrap();
        assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "7"));
        assert_eq!(jane.extra["scopes"], ["a"]);
        let bad = reviewer.user("bad").await.unwrap_err();
        assert_eq!(bad.to_string(), "[invalid bearer token]");
    }
    assert_eq!(log.lock().len(), 2);
    assert_eq!(
        log.lock()[0].path,
        "/apis/authentication.k8s.io/v1/tokenreviews?"
    );
    tokio::time::advance(TEN).await;
    reviewer.user("good").await.unwrap();
    assert_eq!(log.lock().len(), 3);
}

#[tokio::test]
async fn a_token_for_somebody_else_does_not_count() {
    let (client, _) = fake::client(token_answer);
    let reviewer = TokenReviewer::new(client, vec!["here".to_owned()], TEN);
    assert_eq!(reviewer.user("foreign").await.unwrap(), None);
    reviewer.user("good").await.unwrap().unwrap();
}

#[tokio::test]
async fn many_at_once_ask_once() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let open = Arc::clone(&gate);
    let (client, log) = fake::client_async(move |asked| {
        let gate = Arc::clone(&gate);
        async move {
            let _permit = gate.acquire().await.unwrap();
            token_answer(&asked)
        }
    });
    let reviewer = TokenReviewer::new(client, Vec::new(), TEN);
    let first = tokio::spawn({
        let reviewer = reviewer.clone();
        async move { reviewer.user("good").await }
    });
    while log.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..20)
        .map(|_| {
            let reviewer = reviewer.clone();
            tokio::spawn(async move { reviewer.user("good").await })
        })
        .collect();
    // Whoever asked first may leave: the others still hear.
    first.abort();
    let _ = first.await;
    open.add_permits(1);
    for other in others {
        other.await.unwrap().unwrap().unwrap();
    }
    assert_eq!(log.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_and_not_remembered() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let (client, _) = fake::client(move |asked| match seen.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => fake::failure(500, "InternalError"),
        2 => fake::failure(429, "TooManyRequests"),
        3 => token_answer(asked),
        4 => fake::failure(403, "Forbidden"),
        5..10 => fake::failure(504, "Timeout"),
        _ => token_answer(asked),
    });
    let reviewer = TokenReviewer::new(client, Vec::new(), Duration::ZERO);
    let began = tokio::time::Instant::now();
    reviewer.user("good").await.unwrap().unwrap();
    let waited = began.elapsed();
    // 0.5 + 0.75 + 1.125 s, each up to a fifth longer.
    assert!(
        waited.as_millis() >= 2375 && waited.as_millis() <= 2850,
        "{waited:?}"
    );
    assert_eq!(count.load(Ordering::Relaxed), 4);
    // What will not pass is not asked again.
    reviewer.user("good").await.unwrap_err();
    assert_eq!(count.load(Ordering::Relaxed), 5);
    reviewer.user("good").await.unwrap_err();
    assert_eq!(count.load(Ordering::Relaxed), 10);
    reviewer.user("good").await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_silent_lets_nobody_in() {
    let (client, _) = fake::client_async(|_| std::future::pending());
    let reviewer = TokenReviewer::new(client, Vec::new(), TEN);
    let began = tokio::time::Instant::now();
    reviewer.user("good").await.unwrap_err();
    assert_eq!(began.elapsed(), TEN);
}

fn access_answer(asked: &Asked) -> (u16, Value) {
    let mut review = asked.body.clone();
    let spec = &asked.body["spec"];
    let path = spec["nonResourceAttributes"]["path"].as_str();
    review["status"] = match (spec["user"].as_str(), path) {
        (_, Some("/odd")) => json!({"allowed": true, "denied": true}),
        (_, Some("/broken")) => return fake::failure(403, "Forbidden"),
        (Some("jane"), _) => json!({"allowed": true}),
        _ => json!({"allowed": false, "reason": "no RBAC rule"}),
    };
    (201, review)
}

fn user(name: &str, group: &str) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: vec![group.to_owned()],
        ..UserInfo::default()
    }
}

#[tokio::test(start_paused = true)]
async fn access_is_the_api_servers_word_for_ten_seconds() {
    let (client, log) = fake::client(access_answer);
    let authorizer = Authorizer::new(client, AuthorizerConfig::default()).unwrap();
    let metrics = Access::path(&Method::GET, "/metrics");
    let refused = Decision::Refused {
        reason: "no RBAC rule".to_owned(),
    };
    for _ in 0..3 {
        let jane = authorizer.decide(&user("jane", "devs"), &metrics).await;
        assert_eq!(jane.unwrap(), Decision::Allowed);
        let joe = authorizer.decide(&user("joe", "devs"), &metrics).await;
        assert_eq!(joe.unwrap(), refused);
    }
    assert_eq!(log.lock().len(), 2);
    let asked = log.lock()[0].clone();
    assert_eq!(
        asked.path,
        "/apis/authorization.k8s.io/v1/subjectaccessreviews?"
    );
    assert_eq!(
        asked.body["spec"],
        json!({"user": "jane", "groups": ["devs"],
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
    );
    // Another group is another question.
    let ops = authorizer.decide(&user("jane", "ops"), &metrics).await;
    assert_eq!(ops.unwrap(), Decision::Allowed);
    assert_eq!(log.lock().len(), 3);
    tokio::time::advance(TEN).await;
    let _ = authorizer.decide(&user("joe", "devs"), &metrics).await;
    assert_eq!(log.lock().len(), 4);
}

#[tokio::test]
async fn some_need_not_ask() {
    let (client, log) = fake::client(access_answer);
    let authorizer = Authorizer::new(client, AuthorizerConfig::default()).unwrap();
    let allowed = async |user: &UserInfo, path: &str| {
        let access = Access::path(&Method::GET, path);
        authorizer.decide(user, &access).await.unwrap() == Decision::Allowed
    };
    assert!(allowed(&user("root", MASTERS), "/metrics").await);
    assert!(allowed(&UserInfo::anonymous(), "/healthz").await);
    assert!(log.lock().is_empty());
    assert!(!allowed(&UserInfo::anonymous(), "/healthz/ping").await);
}

#[tokio::test]
async fn long_questions_are_not_remembered() {
    let (client, log) = fake::client(access_answer);
    let authorizer = Authorizer::new(client, AuthorizerConfig::default()).unwrap();
    let long = Access::path(&Method::GET, &"/x".repeat(5000));
    for _ in 0..2 {
        authorizer
            .decide(&user("jane", "devs"), &long)
            .await
            .unwrap();
    }
    assert_eq!(log.lock().len(), 2);
}

#[tokio::test]
async fn no_answer_is_no() {
    let (client, log) = fake::client(access_answer);
    let authorizer = Authorizer::new(client, AuthorizerConfig::default()).unwrap();
    for path in ["/odd", "/broken"] {
        let access = Access::path(&Method::GET, path);
        let jane = user("jane", "devs");
        authorizer.decide(&jane, &access).await.unwrap_err();
        authorizer.decide(&jane, &access).await.unwrap_err();
    }
    // The contradiction was an answer, the failure was none.
    assert_eq!(log.lock().len(), 3);
}

#[tokio::test]
async fn the_gate_answers_as_an_api_server_does() {
    let (client, _) = fake::client(access_answer);
    let gate = AuthFilter {
        habits: ImpersonationModeCache::default(),
        filters: FilterMetrics::default(),
        authenticator: House::new().authenticator,
        authorizer: Authorizer::new(client, AuthorizerConfig::default()).unwrap(),
    };
    let refused = async |headers: &[(&str, &str)], access: Access| {
        let mut head = head(&nobody(), headers);
        let refusal = gate.admit(&mut head, access).await.unwrap_err();
        let response = refusal.into_response();
        let (head, body) = response.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.unwrap();
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        (head.status.as_u16(), text)
    };
    let metrics = Access::path(&Method::GET, "/metrics");
    assert_eq!(
        refused(&[("Authorization", "Bearer bad")], metrics.clone()).await,
        (
            401,
            concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"Unauthorized","reason":"Unauthorized","code":401}"#,
                "\n"
            )
            .to_owned()
        )
    );
    assert_eq!(
        refused(&[], metrics).await,
        (
            403,
            concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#,
                r#""forbidden: User \"system:anonymous\" cannot get path \"/metrics\": no RBAC rule","#,
                r#""reason":"Forbidden","details":{},"code":403}"#,
                "\n"
            )
            .to_owned()
        )
    );
    let pods = Access::resource(ResourceAttributes {
        verb: Some("get".to_owned()),
        group: Some("metrics.k8s.io".to_owned()),
        resource: Some("pods".to_owned()),
        name: Some("x".to_owned()),
        namespace: Some("n".to_owned()),
        ..ResourceAttributes::default()
    });
    let (_, text) = refused(&[], pods).await;
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        status["message"],
        "pods.metrics.k8s.io \"x\" is forbidden: User \"system:anonymous\" cannot get resource \"pods\" \
         in API group \"metrics.k8s.io\" in the namespace \"n\": no RBAC rule"
    );
    assert_eq!(
        status["details"],
        json!({"name": "x", "group": "metrics.k8s.io", "kind": "pods"})
    );
    let (code, text) = refused(&[], Access::path(&Method::GET, "/broken")).await;
    assert_eq!(code, 500);
    assert!(
        text.starts_with("Internal Server Error: \"/metrics\": "),
        "{text}"
    );
}

#[tokio::test]
async fn acting_as_somebody_else_must_be_allowed() {
    let (client, log) = fake::client(|asked| {
        let mut review = asked.body.clone();
        let spec = &asked.body["spec"];
        let asked = &spec["resourceAttributes"];
        let path = spec["nonResourceAttributes"]["verb"]
            .as_str()
            .unwrap_or_default();
        let allowed = match asked["verb"].as_str().unwrap_or(path) {
            "impersonate" => spec["user"] == "by-token" && asked["name"] != "admins",
            "impersonate:user-info" => asked["name"] != "nobody",
            "impersonate-on:user-info:get" => spec["user"] == "narrow",
            _ => spec["user"] == "jane",
        };
        review["status"] = json!({ "allowed": allowed });
        (201, review)
    });
    let gate = AuthFilter {
        habits: ImpersonationModeCache::default(),
        filters: FilterMetrics::default(),
        authenticator: House::new().authenticator,
        authorizer: Authorizer::new(client, AuthorizerConfig::default()).unwrap(),
    };
    let admit = async |headers: &[(&str, &str)]| {
        let mut head = head(&nobody(), headers);
        let metrics = Access::path(&Method::GET, "/metrics");
        let admitted = gate.admit(&mut head, metrics).await;
        assert!(!head.headers.contains_key("impersonate-user") || admitted.is_err());
        match admitted {
            Ok(user) => Ok(user.name),
            Err(refusal) => Err((refusal.status().as_u16(), refusal.message())),
        }
    };
    let token = ("Authorization", "Bearer good");
    let jane = ("Impersonate-User", "jane");
    assert_eq!(admit(&[token, jane]).await, Ok("jane".to_owned()));
    // Whether the narrow way is open, then the old one; and whether jane may.
    assert_eq!(log.lock().len(), 3);
    let (code, text) = admit(&[token, jane, ("Impersonate-Group", "admins")])
        .await
        .unwrap_err();
    assert_eq!(code, 403);
    // Having been allowed the old way, that is what is spoken of.
    assert_eq!(
        text,
        "groups \"admins\" is forbidden: User \"by-token\" cannot impersonate resource \"groups\" in API group \"\" at \
         the cluster scope"
    );
    let (code, _) = admit(&[jane]).await.unwrap_err();
    assert_eq!(code, 403, "the anonymous may act as nobody");
    let (code, text) = admit(&[token, ("Impersonate-Uid", "7")]).await.unwrap_err();
    assert_eq!(
        (code, text.contains("without impersonating a user")),
        (400, true)
    );
    // The narrow way: for this request, as this user.
    let narrow = UserInfo {
        name: "narrow".to_owned(),
        ..UserInfo::default()
    };
    for (whom, expected) in [("jane", true), ("nobody", false)] {
        let wanted = head(&nobody(), &[("Impersonate-User", whom)]);
        let wanted = Impersonation::wanted(&wanted.headers).unwrap().unwrap();
        let access = Access::path(&Method::GET, "/metrics");
        let resolved = wanted
            .resolve(&narrow, &access, &ImpersonationModeCache::default(), &gate)
            .await;
        assert_eq!(resolved.is_ok(), expected);
    }
}
