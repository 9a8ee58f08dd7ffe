//! Rights beside that of the request's verb.

use super::*;

/// Who may patch or update may not create by that.
#[tokio::test]
async fn what_creates_needs_the_right_to_create() {
    let server = start().await;
    let rules = json!([
        {"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": ["patch", "update", "get"]},
        {"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "resourceNames": ["mine"], "verbs": ["create"]},
    ]);
    grant(&server, rules).await;
    for (method, group, resource, kind) in [
        ("APPLY", "/api/v1", "configmaps", "ConfigMap"),
        ("APPLY", "/apis/coordination.k8s.io/v1", "leases", "Lease"),
        ("PUT", "/apis/coordination.k8s.io/v1", "leases", "Lease"),
    ] {
        for (name, made) in [("other", 403), ("mine", 201)] {
            let version = group
                .trim_start_matches("/apis/")
                .trim_start_matches("/api/");
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
            let path = format!("{group}/namespaces/default/{resource}/{name}");
            let query = if method == "APPLY" {
                "?fieldManager=m&force=true"
            } else {
                ""
            };
            let what = format!("{method} {path}{query}");
            let (status, body) = ask(&server, "eve", &what, object).await;
            assert_eq!(status, made, "{what}: {body}");
            if status == 403 {
                let why = format!("cannot create resource \\\"{resource}\\\"");
                assert!(body.contains(&why), "{body}");
            }
        }
        let path = format!("{group}/namespaces/default/{resource}/mine");
        assert_eq!(
            status(&server, "admin", &format!("DELETE {path}")).await,
            200
        );
    }
}

/// A refusal of a short role is short.
#[tokio::test]
async fn a_small_role_makes_no_large_refusal() {
    let server = start().await;
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}]);
    grant(&server, rules).await;
    let many = |letter: char| -> Vec<String> { (0..160).map(|n| format!("{letter}{n}")).collect() };
    let role = json!({"metadata": {"name": "x"}, "rules":
        [{"apiGroups": many('g'), "resources": many('r'), "verbs": many('v')}]});
    let what = format!("POST {RBAC}/namespaces/default/roles");
    let (status, body) = ask(&server, "eve", &what, role).await;
    assert_eq!(status, 403);
    assert!(body.len() < 200_000, "{}", body.len());
    assert!(body.contains(" more\""), "{body}");
}

/// Who writes requests for certificates does not decide about them.
#[tokio::test]
async fn approval_needs_the_signers_right() {
    let server = start().await;
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let key = rcgen::KeyPair::generate().unwrap();
    let request = |organization: &str| {
        let mut parameters = rcgen::CertificateParams::default();
        let name = &mut parameters.distinguished_name;
        name.push(rcgen::DnType::OrganizationName, organization);
        name.push(rcgen::DnType::CommonName, "mallory");
        let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
        let text = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            pem.replace("\r\n", "\n"),
        );
        json!({"metadata": {"name": organization.replace(':', "-")}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": text,
        }})
    };
    let what = format!("POST {REQUESTS}");
    let (code, body) = ask(&server, "admin", &what, request("system:masters")).await;
    assert_eq!(code, 403, "{body}");
    create(&server, REQUESTS, request("readers")).await;
    let roles = format!("{RBAC}/clusterroles");
    let rules = |more: Value| {
        let writes = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["*"], "resources":
            ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]});
        json!({"metadata": {"name": "r"}, "rules": [writes, more]})
    };
    let signer = |verb: &str| {
        json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
        "resourceNames": ["kubernetes.io/*"], "verbs": [verb]})
    };
    create(&server, &roles, rules(signer("attest"))).await;
    create(
        &server,
        &format!("{RBAC}/clusterrolebindings"),
        bind("ClusterRole", "r", None),
    )
    .await;
    for (part, verb) in [("approval", "approve"), ("status", "sign")] {
        let condition = if verb == "approve" {
            "Approved"
        } else {
            "Failed"
        };
        let change = json!({"status": {"conditions": [{"type": condition, "status": "True", "reason": "r"}]}});
        let what = format!("PATCH {REQUESTS}/readers/{part}");
        let (code, body) = ask(&server, "eve", &what, change.clone()).await;
        assert_eq!(code, 403, "{body}");
        assert!(
            body.contains(&format!("user not permitted to {verb} requests")),
            "{body}"
        );
        let granted = ask(
            &server,
            "admin",
            &format!("PUT {roles}/r"),
            rules(signer(verb)),
        )
        .await;
        assert_eq!(granted.0, 200, "{}", granted.1);
        let (code, body) = ask(&server, "eve", &what, change).await;
        assert_eq!(code, 200, "{body}");
        assert!(
            body.contains(&format!("\"type\":\"{condition}\"")),
            "{body}"
        );
    }
}
