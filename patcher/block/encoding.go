package block

import (
	"strings"
)

// encoding is how far the bytes of a source can be read without decoding them.
type encoding byte

const (
	unknown encoding = iota // ASCII bytes may mean something else, as in utf-7 and cp037
	plain                   // a byte below 0x80 is that ASCII character, always
	twoByte                 // it may be the second half of another character
)

var (
	plainNames = pattern(`^(utf-?8|u8|(us-)?ascii|646|l[0-9]+|latin-?[0-9]+|(iso-?)?(ir-)?8859(-[0-9]+)?` +
		`|iso-latin-[0-9]+|koi8-[rut]|kz1048|(cp|windows-?)?125[0-8]|(cp|ibm)?(437|720|737|775|85[0-8]|86[0-6]|869|874|1125)` +
		`|mac-?[a-z0-9]+|tis-?620|ptcp154|hp-roman8|gb2312|euc-?(cn|jp|kr)|ujis|eucgb2312-cn)(-|$)`)
	twoByteNames = pattern(`^(gbk|cp936|936|ms936|gb18030|big5|big5hkscs|cp950|950|ms950|shift-?jis|sjis|s-jis|` +
		`ms932|cp932|932|ms-kanji|cp949|949|uhc|johab|cp1361|ms1361)(-|$)`)
)

// encodingOf classes a name of a coding line, spelled as people do.
func encodingOf(name string) encoding {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	switch {
	case plainNames().MatchString(name):
		return plain
	case twoByteNames().MatchString(name):
		return twoByte
	default:
		return unknown
	}
}
