//! The columns of a block come back as they went in, and damage is found.

use index::block::{Block, Decoded, Values, Writer};
use index::bytes::Take;
use proptest::prelude::*;

const ROWS: usize = 40;

fn places() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::btree_set(0..ROWS as u16, 1..=ROWS).prop_map(|set| set.into_iter().collect())
}

fn written(write: impl FnOnce(&mut Writer)) -> (Block, Vec<u8>) {
    let mut writer = Writer::new(ROWS);
    write(&mut writer);
    writer.finish((1, 2))
}

fn read(block: &Block, bytes: &[u8]) -> Decoded {
    let section = block.section(3).unwrap();
    let (from, to) = (section.offset as usize, (section.offset + section.len) as usize);
    Decoded::read(section, block.rows, &bytes[from..to]).unwrap()
}

fn rows_of(decoded: &Decoded) -> Vec<u16> {
    decoded.at.clone().unwrap_or_else(|| (0..ROWS as u16).collect())
}

proptest! {
    #[test]
    fn whole_numbers_come_back(at in places(), seed in any::<i64>(), shift in 0_u32..63) {
        let values: Vec<i64> = at.iter().map(|row| seed.wrapping_mul(i64::from(*row) + 1) >> shift).collect();
        let (block, bytes) = written(|writer| writer.ints(3, &at, &values));
        let decoded = read(&block, &bytes);
        prop_assert_eq!(rows_of(&decoded), at);
        let zone = block.section(3).unwrap().zone;
        prop_assert!(values.iter().all(|value| zone.0 <= *value as f64 && *value as f64 <= zone.1));
        prop_assert_eq!(decoded.values, Values::Ints(values));
    }

    #[test]
    fn floats_come_back_to_the_last_bit(at in places(), seed in any::<u64>(), micros in any::<bool>()) {
        let value = |row: u16| {
            let number = seed.wrapping_mul(u64::from(row) * 2 + 1);
            if micros { (number % 1_000_000_000) as f64 / 1e6 } else { f64::from_bits(number >> 2) }
        };
        let values: Vec<f64> = at.iter().map(|row| value(*row)).collect();
        let (block, bytes) = written(|writer| writer.floats(3, &at, &values));
        let Values::Floats(found) = read(&block, &bytes).values else { panic!("no floats") };
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&found), bits(&values));
    }

    #[test]
    fn codes_and_bits_come_back(codes in prop::collection::vec(0_u16..700, ROWS), at in places()) {
        let (block, bytes) = written(|writer| writer.codes(3, &codes));
        prop_assert_eq!(read(&block, &bytes).values, Values::Codes(codes));
        let (block, bytes) = written(|writer| writer.bits(3, &at));
        prop_assert_eq!(read(&block, &bytes).values, Values::Bits(at));
    }

    #[test]
    fn any_bytes_are_a_section_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), encoding in 1_u8..7) {
        // With the right checksum, so that the content itself is judged.
        let mut directory = Vec::new();
        let (block, _) = written(|writer| writer.codes(3, &[0; ROWS]));
        block.write(&mut directory);
        let section = directory.len() - 30;
        directory[section + 1] = encoding;
        directory[section + 6..section + 10].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        directory[section + 10..section + 14].copy_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        directory[20..24].copy_from_slice(&1000_u32.to_le_bytes());
        let block = Block::read(&mut Take(&directory)).unwrap();
        let section = block.section(3).unwrap();
        prop_assert_eq!(section.len as usize, bytes.len());
        if let Ok(decoded) = Decoded::read(section, ROWS, &bytes) {
            decoded.each(ROWS, |row, _| assert!(row < ROWS));
            prop_assert!(decoded.dense(ROWS).len() == ROWS);
        }
    }
}
