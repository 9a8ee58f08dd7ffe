//! Numbers from outside, as far out as they can be.

use http::Method;
use serde_json::{Value, json};

use crate::requests::Request;
use crate::world::World;

fn request(method: Method, path: &str, body: &Value) -> Request {
    Request {
        method,
        path: path.to_owned(),
        media: "application/json",
        accept: "application/json",
        body: match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        },
        object: None,
    }
}

async fn code(world: &mut World, method: Method, path: &str, body: &Value) -> u16 {
    let request = request(method, path, body);
    let answer = world.ask(&request).await;
    world.check(&request, &answer).unwrap();
    answer.code()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn numbers_of_parameters() {
    let mut world = World::start().await;
    // Whole numbers with a sign, as Go reads them.
    for (text, fine) in [
        ("0", true),
        ("1", true),
        ("%2B5", true),
        ("-1", true),
        ("9223372036854775807", true),
        ("-9223372036854775808", true),
        ("9223372036854775808", false),
        ("18446744073709551615", false),
        ("-9223372036854775809", false),
        ("1e400", false),
        ("NaN", false),
        ("1.5", false),
        ("%D9%A1", false),
        ("0x10", false),
    ] {
        let expected = if fine { 200 } else { 400 };
        for path in [
            format!("{MAPS}?watch=1&timeoutSeconds={text}"),
            format!("{MAPS}?timeoutSeconds={text}"),
            format!("{MAPS}?limit={text}"),
        ] {
            let found = code(&mut world, Method::GET, &path, &Value::Null).await;
            assert_eq!(found, expected, "{path}");
        }
        let path = format!("{MAPS}/none?gracePeriodSeconds={text}");
        let found = code(&mut world, Method::DELETE, &path, &Value::Null).await;
        assert_eq!(found, if fine { 404 } else { 400 }, "{path}");
    }
    // Versions have no sign.
    for (text, expected) in [
        ("0", 200),
        ("1", 200),
        ("18446744073709551615", 504),
        ("18446744073709551616", 400),
        ("-1", 400),
        ("%2B1", 400),
        ("%D9%A1", 400),
        ("1e400", 400),
    ] {
        let path = format!("{MAPS}?resourceVersion={text}");
        let found = code(&mut world, Method::GET, &path, &Value::Null).await;
        assert_eq!(found, expected, "{path}");
    }
    for (text, expected) in [
        ("0", 200),
        ("2562047h", 200),
        ("9999999999999h", 400),
        ("1e400s", 400),
        ("NaN", 400),
        ("-1s", 200),
        ("%D9%A1s", 400),
    ] {
        let path = format!("{MAPS}?timeout={text}");
        let found = code(&mut world, Method::GET, &path, &Value::Null).await;
        assert_eq!(found, expected, "{path}");
    }
}

/// A pod may wish for any time to end in.
#[tokio::test]
async fn grace_periods() {
    let mut world = World::start().await;
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    code(&mut world, Method::POST, accounts, &account).await;
    for grace in [i64::MAX, i64::MAX / 2, 253_402_300_800, 1, 0] {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "nodeName": "n",
                "terminationGracePeriodSeconds": grace,
                "containers": [{"name": "c", "image": "i"}],
            },
        });
        assert_eq!(
            code(&mut world, Method::POST, PODS, &pod).await,
            201,
            "{grace}"
        );
        let path = format!("{PODS}/p");
        assert_eq!(
            code(&mut world, Method::DELETE, &path, &Value::Null).await,
            200,
            "{grace}"
        );
        for shorter in [i64::MAX, i64::MIN, 1, 0] {
            let options = json!({"gracePeriodSeconds": shorter});
            let found = code(&mut world, Method::DELETE, &path, &options).await;
            assert!([200, 404].contains(&found), "{grace} {shorter}: {found}");
            // Every client has to be able to read it.
            let marked = world
                .object(&path)
                .map(|pod| &pod["metadata"]["deletionTimestamp"]);
            let year = marked.and_then(Value::as_str).map(|time| &time[..5]);
            assert!(
                year.is_none_or(|year| ("2026-".."2200-").contains(&year)),
                "{marked:?}"
            );
        }
        assert_eq!(
            code(&mut world, Method::GET, &path, &Value::Null).await,
            404,
            "{grace}"
        );
    }
    for (seconds, expected) in [
        (i64::MAX, 422),
        (i64::MIN, 422),
        (-1, 422),
        (0, 422),
        (600, 201),
        (1 << 32, 201),
    ] {
        let ask = json!({"spec": {"expirationSeconds": seconds}});
        let path = format!("{accounts}/default/token");
        assert_eq!(
            code(&mut world, Method::POST, &path, &ask).await,
            expected,
            "{seconds}"
        );
    }
}
