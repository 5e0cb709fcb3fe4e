//! The families of several queue directories as one text: each sample says of which directory it is.

use super::family::Family;
use std::collections::HashMap;

/// The label with the name of the directory.
const LABEL: &str = "directory";

/// Joins the families of directories, each with its name. A family stands once, where it is first met.
#[must_use]
pub fn joined(directories: impl IntoIterator<Item = (String, Vec<Family>)>) -> Vec<Family> {
    let (mut all, mut places) = (Vec::<Family>::new(), HashMap::new());
    for (name, families) in directories {
        for mut family in families {
            family.samples.iter_mut().for_each(|sample| sample.labels.push((LABEL, name.clone())));
            match places.get(family.name) {
                Some(place) => {
                    let known: &mut Family = &mut all[*place];
                    known.samples.append(&mut family.samples);
                }
                None => {
                    places.insert(family.name, all.len());
                    all.push(family);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::joined;
    use crate::status::metrics::accept::choose;
    use crate::status::metrics::family::Family;
    use crate::status::metrics::text::render;

    #[test]
    fn a_family_stands_once_with_the_samples_of_every_directory() {
        let of = |records| vec![Family::counter("read", "Records").value(records), Family::gauge("queues", "Queues")];
        let families = joined([("chat/a".to_owned(), of(1.0)), ("chat/\"b".to_owned(), of(2.0))]);
        let text = String::from_utf8(render(&families, choose("").format)).unwrap();
        assert_eq!(
            text,
            "# HELP read_total Records\n# TYPE read_total counter\nread_total{directory=\"chat/a\"} 1.0\n\
             read_total{directory=\"chat/\\\"b\"} 2.0\n# HELP queues Queues\n# TYPE queues gauge\n"
        );
    }
}
