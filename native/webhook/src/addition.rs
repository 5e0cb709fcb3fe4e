//! What a pod gets.

use serde_json::{Map, Value};

/// Volumes and init containers of a pod, variables and mounts of its containers: lists of objects with a name.
#[derive(Debug, Default)]
pub struct Addition {
    pub volumes: Vec<Value>,
    pub init_containers: Vec<Value>,
    pub env: Vec<Value>,
    pub volume_mounts: Vec<Value>,
}

impl Addition {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not JSON, not such a document, or adds nothing. The sentence names what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Value::Object(mut document) = serde_json::from_str(text).map_err(|error| error.to_string())? else {
            return Err("must be an object".to_owned());
        };
        let made = Self {
            volumes: taken(&mut document, "volumes")?,
            init_containers: taken(&mut document, "initContainers")?,
            env: taken(&mut document, "env")?,
            volume_mounts: taken(&mut document, "volumeMounts")?,
        };
        match document.keys().next() {
            Some(name) => Err(format!("{name}: not known")),
            None if made.env.is_empty() => Err("env: must not be empty".to_owned()),
            None => Ok(made),
        }
    }
}

fn taken(document: &mut Map<String, Value>, list: &str) -> Result<Vec<Value>, String> {
    let things = match document.remove(list) {
        None => Vec::new(),
        Some(Value::Array(things)) => things,
        Some(_) => return Err(format!("{list}: must be a list")),
    };
    match things.iter().position(|thing| thing["name"].as_str().is_none()) {
        Some(at) => Err(format!("{list}[{at}]: has no name")),
        None => Ok(things),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_document_is_named() {
        for (text, sentence) in [
            ("[]", "must be an object"),
            (r#"{"env":{}}"#, "env: must be a list"),
            (r#"{"env":[{"value":"1"}]}"#, "env[0]: has no name"),
            (r#"{"env":[{"name":"A"}],"ports":[]}"#, "ports: not known"),
            (r#"{"volumes":[]}"#, "env: must not be empty"),
        ] {
            assert_eq!(Addition::parse(text).err().as_deref(), Some(sentence));
        }
        assert!(Addition::parse("{").is_err());
    }

    #[test]
    fn a_list_may_be_left_out() {
        let addition = Addition::parse(r#"{"env":[{"name":"A","value":"1"}]}"#).unwrap();
        assert_eq!((addition.env.len(), addition.volumes.len()), (1, 0));
    }
}
