//! How groups of fields and records of groups are declared.

use queue::record::Scratch;

/// A value that a field can have.
pub trait Field {
    /// Type of its column in SQL; empty: the line has no key of the field's name.
    const COLUMN: &'static str;

    /// Appends the value, or an absent one.
    fn push(self, to: &mut Scratch);
}

impl<F: Field> Field for Option<F> {
    const COLUMN: &'static str = F::COLUMN;

    #[inline(always)]
    fn push(self, to: &mut Scratch) {
        match self {
            Some(value) => value.push(to),
            None => to.push_absent(),
        }
    }
}

/// What there is to know of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Its key in the line.
    pub name: &'static str,
    /// As [`Field::COLUMN`].
    pub column: &'static str,
    /// What it means, in a sentence of Markdown that begins with a blank.
    pub meaning: &'static str,
    /// Whether its texts are few, so that a table stores each only once.
    pub has_few_values: bool,
}

/// Fields that stand together.
pub trait Group {
    /// The fields in their order.
    const FIELDS: &'static [FieldInfo];

    /// Appends their values in that order.
    fn push(self, to: &mut Scratch);
}

impl<G: Group> Group for Option<G> {
    const FIELDS: &'static [FieldInfo] = G::FIELDS;

    #[inline(always)]
    fn push(self, to: &mut Scratch) {
        match self {
            Some(group) => group.push(to),
            None => to.push_absents(G::FIELDS.len()),
        }
    }
}

/// A group that somebody else holds.
impl<G: Group + Copy> Group for &G {
    const FIELDS: &'static [FieldInfo] = G::FIELDS;

    #[inline(always)]
    fn push(self, to: &mut Scratch) {
        (*self).push(to);
    }
}

/// Declares a struct that is a [`Group`](crate::fields::Group). A field is its meaning, and `NAME => MEMBER: TYPE`; the
/// type is a [`Field`](crate::fields::Field). `[few]` behind it: its texts are few.
#[macro_export]
macro_rules! group {
    (@) => { false };
    (@ few) => { true };
    (
        $(#[$meta:meta])*
        $vis:vis struct $group:ident $(<$life:lifetime>)? {
            $( $(#[doc = $meaning:literal])+ $name:expr => $member:ident: $kind:ty $([$few:ident])?, )+
        }
    ) => {
        $(#[$meta])*
        $vis struct $group $(<$life>)? {
            $( $(#[doc = $meaning])+ pub $member: $kind, )+
        }

        impl $(<$life>)? $crate::fields::Group for $group $(<$life>)? {
            const FIELDS: &'static [$crate::fields::FieldInfo] = &[
                $( $crate::fields::FieldInfo {
                    name: $name,
                    column: <$kind as $crate::fields::Field>::COLUMN,
                    meaning: concat!($($meaning),+),
                    has_few_values: $crate::group!(@ $($few)?),
                }, )+
            ];

            #[inline(always)]
            fn push(self, to: &mut ::queue::record::Scratch) {
                $( $crate::fields::Field::push(self.$member, to); )+
            }
        }
    };
}

/// Declares a struct of groups: the values of one record. Of the groups `at the end if any`, those behind the last one
/// that is there are left out.
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $record:ident $(<$life:lifetime>)? {
            $( $part:ident: $group:ty, )+
        } at the end if any {
            $( $last:ident: $last_group:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[allow(missing_docs, reason = "the groups say what they are")]
        $vis struct $record $(<$life>)? {
            $( pub $part: $group, )+
            $( pub $last: Option<$last_group>, )*
        }

        impl $(<$life>)? $record $(<$life>)? {
            /// The fields of each group, in their order.
            pub const GROUPS: &'static [&'static [$crate::fields::FieldInfo]] =
                &[$( <$group as $crate::fields::Group>::FIELDS, )+];
            /// The same of the groups at the end.
            pub const LAST_GROUPS: &'static [&'static [$crate::fields::FieldInfo]] =
                &[$( <$last_group as $crate::fields::Group>::FIELDS, )*];

            /// The fields of all groups in their order.
            #[must_use]
            pub fn fields() -> Vec<$crate::fields::FieldInfo> {
                [Self::GROUPS.concat(), Self::LAST_GROUPS.concat()].concat()
            }

            /// Appends the values in that order.
            #[inline(always)]
            pub fn push(self, to: &mut ::queue::record::Scratch) {
                let Self { $( $part, )+ $( $last, )* } = self;
                $( $crate::fields::Group::push($part, to); )+
                $crate::record!(@last to $($last)*);
            }
        }
    };
    (@last $to:ident) => {};
    (@last $to:ident $first:ident $($rest:ident)*) => {
        if $first.is_some() $(|| $rest.is_some())* {
            $crate::fields::Group::push($first, $to);
            $crate::record!(@last $to $($rest)*);
        }
    };
}
