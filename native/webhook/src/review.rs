//! A review that the API server asks for, and the answer.

use super::addition::Addition;
use super::pod::operations;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

const VERSION: &str = "admission.k8s.io/v1";

/// The answer to a review, as `AdmissionReview` of admission.k8s.io/v1 has it, and why a pod that asks is left as it is.
///
/// # Errors
/// `body` is no such review; the sentence says what is missing.
pub fn answer(body: &[u8], addition: &Addition) -> Result<(String, Option<String>), String> {
    let review: Value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    if review["apiVersion"] != VERSION || review["kind"] != "AdmissionReview" {
        return Err(format!("not an AdmissionReview of {VERSION}"));
    }
    let request = &review["request"];
    let uid = request["uid"].as_str().ok_or("request.uid: missing")?;
    let mut response = json!({"uid": uid, "allowed": true});
    let is_new_pod = request["operation"] == "CREATE"
        && request["kind"] == json!({"group": "", "version": "v1", "kind": "Pod"})
        && request["subResource"].as_str().unwrap_or_default().is_empty();
    let found = match is_new_pod {
        true => operations(&request["object"], addition),
        false => Ok(Vec::new()),
    };
    let mut left = None;
    match found {
        Ok(operations) if operations.is_empty() => {}
        Ok(operations) => {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(BASE64_STANDARD.encode(Value::Array(operations).to_string()));
        }
        Err(sentence) => {
            response["warnings"] = json!([format!("inference-logging: not added: {sentence}")]);
            left = Some(format!("{}: not added: {sentence}", whose(request)));
        }
    }
    Ok((json!({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response}).to_string(), left))
}

/// Namespace and name of a pod; one that a controller makes has the beginning of a name only.
fn whose(request: &Value) -> String {
    let metadata = &request["object"]["metadata"];
    let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or("?");
    format!("{}/{name}", request["namespace"].as_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition() -> Addition {
        Addition::parse(r#"{"env":[{"name":"A","value":"1"}]}"#).unwrap()
    }

    fn review(container: &str) -> Value {
        let annotations = json!({"inference-logging.io/inject": "true", "inference-logging.io/container": container});
        json!({
            "apiVersion": VERSION,
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "operation": "CREATE",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "namespace": "chat",
                "object": {
                    "metadata": {"generateName": "engine-", "annotations": annotations},
                    "spec": {"containers": [{"name": "engine"}]},
                },
            },
        })
    }

    fn answered(review: &Value) -> (Value, Option<String>) {
        let (text, left) = answer(review.to_string().as_bytes(), &addition()).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((whole["apiVersion"].as_str(), whole["kind"].as_str()), (Some(VERSION), Some("AdmissionReview")));
        (whole["response"].clone(), left)
    }

    #[test]
    fn a_patch_is_what_the_server_reads() {
        let (response, left) = answered(&review("engine"));
        assert_eq!(
            (&response["uid"], &response["allowed"], &response["patchType"]),
            (&json!("u"), &json!(true), &json!("JSONPatch"))
        );
        let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let expected = json!([{"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "A", "value": "1"}]}]);
        assert_eq!(serde_json::from_slice::<Value>(&patch).unwrap(), expected);
        assert_eq!(left, None);
    }

    #[test]
    fn a_pod_that_cannot_be_changed_is_let_through_with_a_warning() {
        let (response, left) = answered(&review("other"));
        let why = "not added: inference-logging.io/container=other: the pod has no such container";
        assert_eq!(response["warnings"], json!([format!("inference-logging: {why}")]));
        assert_eq!((&response["allowed"], response.get("patch")), (&json!(true), None));
        assert_eq!(left, Some(format!("chat/engine-: {why}")));
    }

    #[test]
    fn what_is_no_new_pod_is_let_through() {
        for (member, value) in [
            ("operation", json!("UPDATE")),
            ("kind", json!({"group": "apps", "version": "v1", "kind": "Deployment"})),
            ("subResource", json!("exec")),
        ] {
            let mut other = review("engine");
            other["request"][member] = value;
            assert_eq!(answered(&other).0, json!({"uid": "u", "allowed": true}));
        }
    }

    #[test]
    fn what_is_no_review_is_named() {
        let mut old = review("engine");
        old["apiVersion"] = json!("admission.k8s.io/v1beta1");
        let mut nameless = review("engine");
        nameless["request"]["uid"] = json!(1);
        for (body, sentence) in [
            ("{".to_owned(), "not JSON: "),
            ("{}".to_owned(), "not an AdmissionReview of admission.k8s.io/v1"),
            (old.to_string(), "not an AdmissionReview of admission.k8s.io/v1"),
            (nameless.to_string(), "request.uid: missing"),
        ] {
            let said = answer(body.as_bytes(), &addition()).unwrap_err();
            assert!(said.starts_with(sentence), "{said}");
        }
    }
}
