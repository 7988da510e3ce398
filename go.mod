module sgpatch

go 1.25
